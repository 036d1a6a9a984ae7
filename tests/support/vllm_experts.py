"""Digests of the tensors of vLLM's expert layers."""


def digest(tensor):
    """A digest of dtype, shape, strides and sums that depend on every byte and its place, computed on the tensor's
    device."""
    import torch
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    whole = len(flat) // 8 * 8
    sums = [int(flat[whole:].sum())]
    for part in flat[:whole].view(torch.int64).split(1 << 25):
        sums.append(int((part * (2 * torch.arange(len(part), device=part.device) + 1)).sum()))
    return [str(tensor.dtype), list(tensor.shape), list(tensor.stride()), sums]


def experts_of(model):
    """{name: digest} of everything that the expert layers hold for their kernels."""
    found = {}
    for name, layer in model.named_modules():
        method = getattr(layer, "quant_method", None)
        method = getattr(method, "old_quant_method", method)  # under LoRA
        if not hasattr(method, "mxfp4_backend") or not hasattr(layer, "w13_weight"):
            continue
        held = dict(layer.named_parameters())
        for weight in ("w13_weight", "w2_weight"):
            if weight not in held:  # triton: an object around its storage, and no parameter
                held[weight] = getattr(layer, weight).storage.data
        for scale in ("w13_precision_config", "w2_precision_config"):
            if getattr(method, scale, None) is not None:
                held[scale] = getattr(method, scale).weight_scale.storage.data
        found.update({f"{name}.{key}": digest(t.data) for key, t in held.items()})
        found[f"{name} backend"] = method.mxfp4_backend.name
    return found
