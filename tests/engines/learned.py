"""Conversions of installed libraries for `python3 -m mxfp4_pack.learn --call learned:NAME`, by hand, on a CPU:

    PYTHONPATH=src/loaders:tests/engines:VLLM/third_party python3 -m mxfp4_pack.learn --call learned:triton_hopper ..

humming: humming-kernels for bf16 activations, as vLLM asks it for; on a GPU its own kernels repack.

triton_hopper, triton_blackwell: triton_kernels, VLLM/third_party has vLLM's copy. All that moves bytes is the library's own,
but for the pad of scales to four groups, which is vLLM's line; faked is the GPU's capability. A layer comes padded by the
engine: hidden and intermediate must be those of its kernel.
"""

from unittest import mock

import torch


def triton(layer, major):
    from triton_kernels.tensor import FP4, convert_layout, wrap_torch_tensor
    from triton_kernels.tensor_details import layout
    out = {}
    with mock.patch.object(layout, "cuda_capability_geq", lambda m, minor=0: major >= m):
        values, value_options = layout.make_default_matmul_mxfp4_w_layout(mx_axis=1)
        scales, scale_options = layout.make_default_matmul_mxfp4_w_scale_layout(mx_axis=1, num_warps=8)
        for role in ("w13", "w2"):
            scale = layer[role + "_scale"]
            if major == 9:
                scale = torch.nn.functional.pad(scale, (0, -scale.shape[-1] % 4))
            code = wrap_torch_tensor(layer[role].transpose(-2, -1), dtype=FP4)
            out[role + "_weight"] = convert_layout(code, values, **value_options).storage.data
            made = convert_layout(wrap_torch_tensor(scale.transpose(-2, -1)), scales, **scale_options).storage.data
            out[role + "_weight_scale"] = made.reshape(len(scale), -1) if major == 10 else made
            if role + "_bias" in layer:
                out[role + "_bias"] = layer[role + "_bias"].float()
    return out


def triton_hopper(layer):
    return triton(layer, 9)


def triton_blackwell(layer):
    return triton(layer, 10)


def humming(layer):
    from humming import transform

    from humming_kernels import layer_config
    device, out = "cuda" if torch.cuda.is_available() else "cpu", {}
    for role in ("w13", "w2"):
        codes = layer[role].to(device)
        experts, n, half = codes.shape
        tensors = {"weight": codes.view(torch.int32),
                   "weight_scale": layer[role + "_scale"].to(device).view(torch.float8_e8m0fnu)}
        made = transform.transform_humming_tensors(layer_config(n, 2 * half, experts, False), tensors)
        out |= {f"{role}_{name}": tensor for name, tensor in made.items()}
    return out
