"""The results of the engines' converters, written in torch from the layouts' formulas: slow and independent of the C++
code. A layer is {(role, part): tensor}: codes U8 [E, N, K/2], scales U8 [E, N, K/32], bias BF16 [E, N]. `test_formats`
compares them with the golden vectors. Everything also runs on the meta device.
"""

import torch


def pad(layer, pairs, hidden, intermediate, scale_pads):
    """The engine's padding: w13's rows in pairs get their pads at the end, in halves each half at its end.

    scale_pads: the bytes of pads along hidden and along intermediate. In the corner of both, the second byte applies.
    """
    def grow(t, rows, columns, along_rows, along_columns, halves):
        if halves:
            halves = (grow(h, rows // 2, columns, along_rows, along_columns, False) for h in t.chunk(2, dim=1))
            return torch.cat(list(halves), dim=1)
        out = torch.zeros((t.shape[0], rows, columns), dtype=t.dtype)
        if t.dtype == torch.uint8:
            out[:, :, t.shape[2]:] = along_columns
            out[:, t.shape[1]:, :columns if role == "w13" else t.shape[2]] = along_rows
        out[:, :t.shape[1], :t.shape[2]] = t
        return out

    out = {}
    for (role, part), t in layer.items():
        rows, k = (2 * intermediate, hidden) if role == "w13" else (hidden, intermediate)
        columns = {"codes": k // 2, "scales": k // 32, "bias": 1}[part]
        pads = scale_pads if part == "scales" else (0, 0)
        along_rows, along_columns = pads[::-1] if role == "w13" else pads
        grown = grow(t.reshape(*t.shape[:2], -1), rows, columns, along_rows, along_columns, role == "w13" and not pairs)
        out[role, part] = grown[..., 0] if part == "bias" else grown
    return out


def reorder_w13(layer, order):
    """order(rows of w13, the same on codes, scales and bias)"""
    return {(role, part): order(t) if role == "w13" else t for (role, part), t in layer.items()}


def gate_up(t):
    """pairs gate, up, gate, up -> halves [gate; up]"""
    return torch.cat([t[:, 0::2], t[:, 1::2]], dim=1)


def swap(t):
    return torch.cat(t.chunk(2, dim=1)[::-1], dim=1)


def scatter(values, positions, size):
    """out[e, positions[i]] = values[e, i]"""
    out = torch.zeros((values.shape[0], size), dtype=values.dtype, device=values.device)
    out[:, positions.reshape(-1).to(values.device)] = values.reshape(values.shape[0], -1)
    return out


def grid(*sizes):
    return torch.meshgrid(*[torch.arange(s, device="cpu") for s in sizes], indexing="ij")


def nibbles(codes):
    return torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)


def marlin(layer):
    def codes(t):
        e, rows, k2 = t.shape
        n, k = grid(rows, 2 * k2)
        word = ((k // 16) * (rows // 64) + n // 64) * 128 + 16 * (n % 8) + 4 * (k % 8 // 2) + n % 64 // 16
        nibble = 4 * (k % 2) + 2 * (n % 16 // 8) + k % 16 // 8
        flat = scatter(nibbles(t), word * 8 + nibble, rows * k2 * 2)
        return (flat[:, 0::2] | flat[:, 1::2] << 4).view(torch.int32).reshape(e, k2 // 8, 2 * rows)

    def scales(t):
        e, rows, groups = t.shape
        n = torch.arange(rows)
        j = n % 64 // 8
        to = 64 * (n // 64) + 8 * (n % 8) + 4 * (j // 4) + torch.tensor([0, 2, 1, 3])[j % 4]
        out = torch.empty((e, groups, rows), dtype=t.dtype)
        out[:, :, to] = t.transpose(1, 2)
        return out.view(torch.float8_e8m0fnu)

    def bias(t):
        i, a, b = grid(4, 4, 2)
        take = (2 * i + 8 * a + b).reshape(-1)
        return t.reshape(t.shape[0], -1, 32)[:, :, take].reshape(t.shape)

    return {(role, part): {"codes": codes, "scales": scales, "bias": bias}[part](t) for (role, part), t in layer.items()}


def flashinfer_sm90_v1(layer):
    """FlashInfer's mixed-input CUTLASS for SM90, generation 1. w13 must be [up; gate]."""
    def codes(t):
        e, rows, k2 = t.shape
        n, b, q = grid(rows, k2, 2)
        low, r, h = b % 32, n % 8, n % 16 // 8
        row = n // 16 * 16 + low // 8 % 2 * 8 + r
        byte = b // 32 * 32 + low // 16 * 16 + low % 4 * 4 + low % 8 // 4 * 2 + q
        flat = scatter(nibbles(t), (row * k2 + byte) * 2 + h, rows * k2 * 2)
        return (flat[:, 0::2] | flat[:, 1::2] << 4).reshape(e, rows, k2)

    def scales(t):
        e, rows, groups = t.shape
        return t.reshape(e, rows, groups // 4, 4).transpose(1, 2).reshape(e, groups // 4, 4 * rows)

    return {(role, part): {"codes": codes, "scales": scales, "bias": lambda t: t}[part](t)
            for (role, part), t in layer.items()}


def hopper_codes(t, rows_multiple=16, bytes_multiple=32):
    """triton_kernels: storage [E, N/4, 2K], seen transposed. v3.5 pads rows to 16 and their bytes to 32, v3.6 both to 64."""
    e, rows, k2 = t.shape
    big_n, big_k = -(-rows // rows_multiple) * rows_multiple, -(-k2 // bytes_multiple) * bytes_multiple
    n, b = grid(rows, k2)
    row = n // 16 * 4 + n % 8 // 2
    column = b // 32 * 128 + n % 2 * 64 + b % 4 * 16 + b // 8 % 4 * 4 + b // 4 % 2 * 2 + n // 8 % 2
    x = scatter(t, row * 4 * big_k + column, big_n * big_k).reshape(e, -1, 4).to(torch.int64)
    half = [(v & 8) << s | (v & 7) << m for v, s, m in zip((x & 15).unbind(-1)[:3], (12, 9, 6), (6, 3, 0))]
    half += [(v & 8) << s | (v & 7) << m for v, s, m in zip((x >> 4).unbind(-1)[:3], (12, 9, 6), (6, 3, 0))]
    last = [(v & 8) << 11 | (v & 6) << 9 | (v & 1) << 13 for v in (x[..., 3] & 15, x[..., 3] >> 4)]
    low = half[0] | half[1] | half[2] | last[0]
    high = half[3] | half[4] | half[5] | last[1]
    word = torch.stack([low & 255, low >> 8, high & 255, high >> 8], dim=-1).to(torch.uint8)
    return word.reshape(e, big_n // 4, 4 * big_k).transpose(1, 2)


def hopper_scales(t, groups_multiple):
    """8 warps: storage [E, N/32, K], seen transposed; groups padded with zeros."""
    e, rows, groups = t.shape
    big_n, big_g = -(-rows // 256) * 256, -(-groups // groups_multiple) * groups_multiple
    n, g = grid(rows, groups)
    row = n // 256 * 8 + n // 16 % 8
    column = g // 2 * 64 + n // 128 % 2 * 32 + n % 8 * 4 + g % 2 * 2 + n // 8 % 2
    return scatter(t, row * 32 * big_g + column, big_n * big_g).reshape(e, big_n // 32, 32 * big_g).transpose(1, 2)


# (engine, backend): multiples that hidden and intermediate are padded to, and the pad bytes of scales. SGLang pads for
# FlashInfer along hidden before loading (buffers of ones) and along intermediate after it (zeros).
PADDING = {("vllm", "marlin"): (256, 128, (0, 0)), ("vllm", "flashinfer-cutlass"): (128, 128, (0, 0)),
           ("vllm", "triton-hopper"): (32, 64, (0, 0)), ("sglang", "marlin"): (256, 128, (0x7F, 0x7F)),
           ("sglang", "flashinfer-cutlass"): (256, 128, (0x7F, 0)), ("sglang", "triton-hopper"): (32, 64, (0x7F, 0x7F))}


def padded_sizes(engine, backend, hidden, intermediate):
    h, i, _ = PADDING[engine, backend]
    return -(-hidden // h) * h, -(-intermediate // i) * i


def converted(engine, backend, layer, pairs):
    """A padded layer as the engine holds it after its conversion."""
    if backend == "marlin":
        return marlin(reorder_w13(layer, gate_up) if pairs and engine == "sglang" else layer)
    if backend == "flashinfer-cutlass":
        return flashinfer_sm90_v1(reorder_w13(reorder_w13(layer, gate_up) if pairs else layer, swap))
    multiples, groups = ((16, 32), 4) if engine == "vllm" else ((64, 64), 2)  # layout versions a and b64-pairs
    change = {"codes": lambda t: hopper_codes(t, *multiples), "scales": lambda t: hopper_scales(t, groups),
              "bias": torch.Tensor.float}
    return {(role, part): change[part](t) for (role, part), t in layer.items()}
