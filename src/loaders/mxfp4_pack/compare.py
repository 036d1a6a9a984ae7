"""Compares tensors that an engine made with packed tensors."""

import torch


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its axes sorted by stride, which is contiguous if `tensor` is a transposed view of contiguous
    memory."""
    return tensor.permute(sorted(range(tensor.ndim), key=lambda d: (-tensor.stride(d), -tensor.shape[d])))


def misfit(like: torch.Tensor, tensor: torch.Tensor) -> str | None:
    """None if Triton's kernels can read `tensor` instead of the engine's own storage `like`; else the difference.
    `tensor` may have more storage, because the kernels take strides from the tensor."""
    order = [sorted(range(t.ndim), key=lambda d: -t.stride(d)) for t in (like, tensor)]
    if like.dtype != tensor.dtype or order[0] != order[1] or any(a > b for a, b in zip(like.shape, tensor.shape)):
        return (f"is {like.dtype} {tuple(like.shape)} with strides {like.stride()}, packed is {tensor.dtype} "
                f"{tuple(tensor.shape)} with strides {tensor.stride()}")
    return None


def difference(made: torch.Tensor | None, want: torch.Tensor, larger: bool) -> str | None:
    """None if `made` has the bytes of `want` (stored contiguously); else the difference.

    larger: `want` may have more storage (pads), because kernels take strides from the tensor."""
    if made is None:
        return "missing"
    if made.shape[0] == 1 and made.numel() == want.numel():  # triton_kernels: experts and blocks of rows share an axis
        made = made.reshape(want.shape)
    made = in_memory_order(made)
    if made.dtype != want.dtype:
        return f"dtype is {made.dtype}, packed {want.dtype}"
    shape = tuple(made.shape)
    fits = shape == tuple(want.shape)
    if larger and made.ndim == want.ndim:
        fits = all(a <= b for a, b in zip(shape, want.shape))
    if not fits:
        return f"shape is {shape}, packed {tuple(want.shape)}"
    want = want[tuple(slice(0, n) for n in shape)]
    same = torch.equal(made.contiguous().view(torch.uint8), want.contiguous().view(torch.uint8))
    return None if same else "bytes differ"


def as_stored(made, want):
    """A tensor of the engine in the dtype and shape of the stored one, if both describe the same bytes. AITER, for
    example, has codes as float4_e2m1fn_x2, with one axis for the experts' rows."""
    if made is None or want is None or made.numel() != want.numel() or not made.is_contiguous():
        return made
    if made.dtype != want.dtype and made.element_size() == want.element_size() == 1:
        made = made.view(want.dtype)
    return made.reshape(want.shape) if made.ndim == want.ndim - 1 else made


def in_form_of(made, tensor):
    """A packed tensor with the dtype, axes, class and attributes of the engine's converted canary `made`."""
    if not isinstance(made, torch.Tensor) or tensor is None:
        return tensor
    if tensor.dtype != made.dtype and (tensor.element_size() == made.element_size() or tensor.is_contiguous()):
        tensor = tensor.view(made.dtype)
    if made.ndim == tensor.ndim - 1:
        tensor = tensor.flatten(0, 1)
    if isinstance(made, torch.nn.Parameter):
        tensor = torch.nn.Parameter(tensor, requires_grad=False)
    vars(tensor).update(vars(made))
    return tensor
