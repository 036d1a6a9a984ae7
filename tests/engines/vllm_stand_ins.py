"""Formulas that stand in for functions of vLLM that only its compiled kernels have; what they show is "stand-in"."""

import torch

import formats


def marlin_repack(b_q_weight, perm=None, size_k=None, size_n=None, num_bits=4, is_a_8bit=False):
    """[K/8, N] int32 -> [K/16, 2N] int32"""
    codes = b_q_weight.T.contiguous().view(torch.uint8)[None]
    return formats.marlin({("w13", "codes"): codes})["w13", "codes"][0]


def deepgemm_scales(w13_weight, w2_weight, w13_weight_scale, w2_weight_scale):
    """[E, N, K/32] -> [E, N, K/128] int32, columns outermost"""
    def pack(scale):
        words = scale.data.contiguous().view(torch.int32)
        e, n, k = words.shape
        return torch.empty_strided((e, n, k), (n * k, 1, n), dtype=torch.int32).copy_(words)
    return pack(w13_weight_scale), pack(w2_weight_scale)


def cpu_codes(weight):
    """Blocks of 32 rows: low nibbles of a byte are rows 0 to 15, high ones rows 16 to 31; pairs of columns outermost."""
    e, n, k2 = weight.shape
    nibbles = formats.nibbles(weight).reshape(e, n // 32, 2, 16, k2, 2)
    return (nibbles[:, :, 0] | nibbles[:, :, 1] << 4).transpose(2, 3).reshape(e, n // 32, k2, 32)


def cpu_scales(scale):
    e, n, groups = scale.shape
    return scale.reshape(e, n // 32, 32, groups).transpose(2, 3).contiguous()
