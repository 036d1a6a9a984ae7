"""Common parts of the scripts that make testdata/golden/layer_sglang_*.safetensors and layer_vllm_aiter."""
import os

import torch
from safetensors.torch import save_file

EXPERTS = 2


def random_layer(hidden, intermediate, bias):
    def some(low, high, *shape):
        return torch.randint(low, high, (EXPERTS, *shape), dtype=torch.uint8)
    raw = {"w13": some(0, 256, 2 * intermediate, hidden // 2), "w2": some(0, 256, hidden, intermediate // 2),
           "w13_scale": some(110, 135, 2 * intermediate, hidden // 32),
           "w2_scale": some(110, 135, hidden, intermediate // 32)}
    if bias:
        raw["w13_bias"] = torch.randn(EXPERTS, 2 * intermediate).bfloat16()
        raw["w2_bias"] = torch.randn(EXPERTS, hidden).bfloat16()
    return raw


def fill(parameter, raw, halves):
    """As the engine's loaders do: from the first row, of each half where w13 has halves."""
    target = parameter.data.view(raw.dtype)
    parts = 2 if halves else 1
    rows, own = target.shape[1] // parts, raw.shape[1] // parts
    for part in range(parts):
        from_, to = raw[:, part * own:(part + 1) * own], target[:, part * rows:part * rows + own]
        to[:, :, :raw.shape[2]] = from_


def write(directory, name, rows, raw, made, hidden, intermediate):
    tensors = {f"in.{key}": value for key, value in raw.items()} | made
    save_file({key: value.contiguous() for key, value in tensors.items()},
              os.path.join(directory, f"layer_{name}.safetensors"),
              {"experts": str(EXPERTS), "hidden": str(hidden), "intermediate": str(intermediate), "w13_rows": rows})
