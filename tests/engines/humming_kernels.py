"""Computes an output's first layer from the packed bytes with humming's own kernels on a GPU, and compares with float64
from the checkpoint. Usage: humming_kernels.py OUT CKPT, both of a DeepSeek-V4; OUT for vLLM's humming or humming-w4a8.

Needs humming-kernels 0.1.19 with its dependencies, torch, safetensors and a Hopper GPU. Exit code 1 if a result is
wrong. Prints relative L2 errors. For W4A16 they come from bf16 between the products, for W4A8 from FP8 activations."""
import json
import pathlib
import sys

import torch
from humming import dtypes, transform
from humming.config import InputQuantizationMode
from humming.forward import humming_forward
from humming.schema import HummingInputSchema, HummingWeightSchema
from safetensors import safe_open

TOKENS, TOP_K = (1, 16, 256), 6
TOLERANCE = {False: 0.01, True: 0.06}
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def tensors_of(folder):
    """Every tensor's name and a function that reads it."""
    out = {}
    for path in sorted(pathlib.Path(folder).rglob("*.safetensors")):
        file = safe_open(path, "pt", device="cuda")
        out |= {name: (lambda file=file, name=name: file.get_tensor(name)) for name in file.keys()}
    return out


def dequantized(checkpoint, name):
    codes = checkpoint[name + ".weight"]().view(torch.uint8)
    scales = checkpoint[name + ".scale"]().view(torch.uint8)
    values = FP4.to(codes.device)[torch.stack((codes & 15, codes >> 4), -1).flatten(1).long()]
    return values * torch.exp2(scales.double() - 127).repeat_interleave(32, 1)


def layer_config(n, k, experts, w4a8):
    """As vLLM 0.33 asks for the experts of a DeepSeek-V4."""
    inputs = HummingInputSchema()
    if w4a8:
        inputs = HummingInputSchema(a_dtype=dtypes.float8e4m3, input_scale_group_size=128,
                                    input_scale_dtype=dtypes.float32, input_quant_mode=InputQuantizationMode.DynamicGroup)
    weights = HummingWeightSchema(b_dtype=dtypes.float4e2m1, bs_dtype=dtypes.float8e8m0, weight_scale_group_size=32)
    return transform.prepare_layer_config(shape_n=n, shape_k=k, weight_schema=weights, input_schema=inputs,
                                          num_experts=experts, pad_n_to_multiple=256, pad_k_to_multiple=128,
                                          torch_dtype=torch.bfloat16)


class Product:
    """One role's matrices of all experts; rows of the input are sorted by expert."""

    def __init__(self, out, prefix, role, shape, experts):
        parts = {part: out[f"{prefix}.{role}_{part}"]() for part in ("weight", "weight_scale", "weight_scale_2")
                 if f"{prefix}.{role}_{part}" in out}
        self.w4a8 = "weight_scale_2" in parts
        self.config = layer_config(*shape, experts, self.w4a8)
        self.parts = parts
        self.locks = torch.zeros(2048, dtype=torch.int32, device="cuda")

    def __call__(self, x, offsets):
        return humming_forward(self.config, inputs=x, expert_layout=offsets, locks=self.locks,
                               compute_config={"gemm_type": "grouped_contiguous"}, **self.parts)


def activation(gate, up):
    return torch.nn.functional.silu(gate) * up


def error_of(w13, w2, experts, tokens, hidden, weights):
    generator = torch.Generator("cuda").manual_seed(tokens)
    x = torch.randn(tokens, hidden, device="cuda", generator=generator).bfloat16()
    choice = torch.rand(tokens, experts, device="cuda", generator=generator).topk(min(TOP_K, experts)).indices.flatten()
    order = choice.argsort(stable=True)
    rows = x.repeat_interleave(len(choice) // tokens, 0)[order].contiguous()
    offsets = torch.nn.functional.pad(choice.bincount(minlength=experts).cumsum(0), (1, 0))
    gate, up = w13(rows, offsets).float().chunk(2, -1)
    got = w2(activation(gate, up).bfloat16(), offsets).double()
    want = torch.empty_like(got)
    for expert in range(experts):
        at = slice(offsets[expert], offsets[expert + 1])
        gate, up = (rows[at].double() @ weights(expert, name).T for name in ("w1", "w3"))
        want[at] = activation(gate, up) @ weights(expert, "w2").T
    return ((got - want).norm() / want.norm()).item()


def main(out, checkpoint):
    out, checkpoint = tensors_of(out), tensors_of(checkpoint)
    prefix = min(name for name in out if name.endswith("experts.w13_weight")).removesuffix(".w13_weight")
    name_of = f"{prefix.removeprefix('model.')}.{{}}.{{}}".format
    experts = sum(name.startswith(prefix.removeprefix("model.") + ".") and name.endswith(".w1.weight")
                  for name in checkpoint)
    intermediate, half = checkpoint[name_of(0, "w1") + ".weight"]().shape
    hidden = 2 * half
    w13 = Product(out, prefix, "w13", (2 * intermediate, hidden), experts)
    w2 = Product(out, prefix, "w2", (hidden, intermediate), experts)
    right = True
    for tokens in TOKENS:
        error = error_of(w13, w2, experts, tokens, hidden, lambda e, name: dequantized(checkpoint, name_of(e, name)))
        right &= error < TOLERANCE[w13.w4a8]
        print(json.dumps({"kernel": "humming-w4a8" if w13.w4a8 else "humming", "layer": prefix, "experts": experts,
                          "hidden": hidden, "intermediate": intermediate, "tokens": tokens, "error": round(error, 6)}))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
