"""An MoE layer of GPT-OSS in double precision, from unpacked experts: written from the model's definition."""

import torch

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def matrices(codes, scales):
    """[experts, rows, columns] of codes [.., columns / 2] and scales [.., columns / 32]"""
    values = E2M1[torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2).long()]
    factors = torch.exp2(scales.double() - 127).repeat_interleave(32, dim=-1)
    return values * factors


def gpt_oss_layer(raw, x, ids, weights):
    """raw: {(role, part): tensor}, w13's rows gate, up, gate, up ..; weights: of each token's experts."""
    w13, w2 = (matrices(raw[role, "codes"], raw[role, "scales"]) for role in ("w13", "w2"))
    out = torch.zeros_like(x, dtype=torch.float64)
    for token, row in enumerate(x.double()):
        for expert, weight in zip(ids[token].long(), weights[token].double()):
            h = w13[expert] @ row + raw["w13", "bias"][expert].double()
            gate, up = h[0::2].clamp(max=7.0), h[1::2].clamp(-7.0, 7.0)
            h = gate * torch.sigmoid(1.702 * gate) * (up + 1)
            out[token] += weight * (w2[expert] @ h + raw["w2", "bias"][expert].double())
    return out
