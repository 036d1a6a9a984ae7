"""Makes testdata/golden/layer_vllm_cutlass.safetensors: a random layer, and what vLLM's own functions make of its scales for
its CUTLASS W4A4 kernel, on a CPU. usage: cutlass_golden.py OUT-DIRECTORY; needs vLLM 0.33.0's Python."""
import os
import sys

import torch
from safetensors.torch import save_file

from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import _swizzle_cutlass_mxfp4_scales

EXPERTS, HIDDEN, INTERMEDIATE = 2, 256, 128


def some(low, high, *shape):
    return torch.randint(low, high, (EXPERTS, *shape), dtype=torch.uint8)


torch.manual_seed(1)
raw = {"w13": some(0, 256, 2 * INTERMEDIATE, HIDDEN // 2), "w2": some(0, 256, HIDDEN, INTERMEDIATE // 2),
       "w13_scale": some(110, 135, 2 * INTERMEDIATE, HIDDEN // 32),
       "w2_scale": some(110, 135, HIDDEN, INTERMEDIATE // 32)}
made = {"vllm.mxfp4_mxfp4.w13": raw["w13"], "vllm.mxfp4_mxfp4.w2": raw["w2"]}  # as they are
made |= {f"vllm.mxfp4_mxfp4.{role}_scale": _swizzle_cutlass_mxfp4_scales(raw[role + "_scale"]) for role in ("w13", "w2")}
save_file({f"in.{key}": value for key, value in raw.items()} | {key: value.clone() for key, value in made.items()},
          os.path.join(sys.argv[1], "layer_vllm_cutlass.safetensors"),
          {"experts": str(EXPERTS), "hidden": str(HIDDEN), "intermediate": str(INTERMEDIATE), "w13_rows": "halves"})
