"""The MoE kernels of the C library, on a packed layer in GPU memory."""

import ctypes
from functools import lru_cache

import torch

from ._library import Packer, check

Pair = ctypes.c_void_p * 2


class Layer(ctypes.Structure):
    """mxfp4_pack_moe_layer"""
    _fields_ = [("size", ctypes.c_size_t), ("tensor", ctypes.c_char_p), ("rank", ctypes.c_int), ("gpu", ctypes.c_int),
                ("experts", ctypes.c_int64), ("top_k", ctypes.c_int64), ("swiglu_limit", ctypes.c_double),
                ("codes", Pair), ("scales", Pair), ("bias", Pair)]


class Batch(ctypes.Structure):
    """mxfp4_pack_moe_batch"""
    _fields_ = [("size", ctypes.c_size_t), ("tokens", ctypes.c_int64), ("x", ctypes.c_void_p), ("ids", ctypes.c_void_p),
                ("weights", ctypes.c_void_p), ("expert_map", ctypes.c_void_p), ("mapped", ctypes.c_int64),
                ("out", ctypes.c_void_p), ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_int64)]


@lru_cache(maxsize=None)
def opened(directory, number, rank):
    return Packer(directory, number, rank)


class Moe:
    """A layer of a PackedSet, or the part of its experts that a rank has."""

    def __init__(self, packed, entries, experts, top_k, gpu, swiglu_limit=None):
        """Raises Refused with the reason if the kernels cannot compute the layer on GPU `gpu`. experts: their number.
        The layer computes nothing before `bind`."""
        self.packer = opened(packed.directory, packed.number, packed.rank)
        self.library = self.packer.library
        self.hidden = packed.padded_sizes[0]
        self.handle = ctypes.c_void_p()
        self.layer = Layer(ctypes.sizeof(Layer), entries["w13", "codes"].name.encode(), packed.rank, gpu, experts, top_k,
                           swiglu_limit or 0)
        self.open(None)

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.mxfp4_pack_close_moe(self.handle)

    def open(self, handle):
        check(self.library, self.library.mxfp4_pack_open_moe(self.packer.handle, ctypes.byref(self.layer), handle))

    def bind(self, tensors):
        """tensors: {(role, part): tensor}, in the memory of the GPU. They must stay, with their bytes."""
        self.tensors = tensors
        for part in ("codes", "scales", "bias"):
            of = (tensors.get((role, part)) for role in ("w13", "w2"))
            setattr(self.layer, part, Pair(*(None if t is None else t.data_ptr() for t in of)))
        self.open(ctypes.byref(self.handle))

    def workspace(self, tokens):
        """The bytes that so many tokens need at once."""
        count = ctypes.c_int64()
        check(self.library, self.library.mxfp4_pack_moe_workspace(self.handle, tokens, ctypes.byref(count)))
        return count.value

    def run(self, x, ids, weights, expert_map, out, workspace):
        """Contiguous tensors: x and out bf16 [tokens, hidden], ids i32 and weights f32 [tokens, top_k], expert_map i32 or
        None, workspace of bytes. Computes on the current CUDA stream and does not wait."""
        if x.shape[1] != self.hidden or ids.shape != (len(x), self.layer.top_k) or out.shape != x.shape:
            raise ValueError(f"x {tuple(x.shape)}, ids {tuple(ids.shape)} and out {tuple(out.shape)} do not fit a layer of "
                             f"hidden size {self.hidden} and {self.layer.top_k} experts a token")
        if not len(x):
            return
        mapped = 0 if expert_map is None else len(expert_map)
        batch = Batch(ctypes.sizeof(Batch), len(x), x.data_ptr(), ids.data_ptr(), weights.data_ptr(),
                      expert_map.data_ptr() if mapped else None, mapped, out.data_ptr(), workspace.data_ptr(), len(workspace))
        stream = torch.cuda.current_stream(x.device).cuda_stream
        check(self.library, self.library.mxfp4_pack_run_moe(self.handle, ctypes.byref(batch), stream))
