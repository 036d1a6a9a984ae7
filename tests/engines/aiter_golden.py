"""Makes testdata/golden/layer_vllm_aiter.safetensors: a random layer of halves that vLLM pads to 128 and not to 256,
and vLLM's conversion of the layer for AITER's kernels on a CPU. Usage: aiter_golden.py OUT-DIRECTORY

Needs vLLM 0.33.0. AITER_SOURCE names the folder aiter of AITER's sources (e404860), whose shuffles are torch.
Exchanged are only questions about the GPU."""
import ast
import os
import sys
from types import ModuleType, SimpleNamespace
from unittest import mock

import torch
from torch.nn import Parameter

rocm = ModuleType("vllm.platforms.rocm")
rocm.on_gfx1250 = rocm.on_gfx942 = rocm.on_mi3xx = lambda: False
rocm.get_cdna_version = lambda: 4
sys.modules["vllm.platforms.rocm"] = rocm

from vllm.model_executor.layers.fused_moe.activation import MoEActivation  # noqa: E402
from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle  # noqa: E402

from golden_layer import EXPERTS, fill, random_layer, write  # noqa: E402

ROCM = SimpleNamespace(is_rocm=lambda: True, is_cuda=lambda: False, is_xpu=lambda: False, is_cpu=lambda: False)


def packages():
    """AITER's modules of shuffles, without what its packages begin with, which asks for ROCm."""
    made = {name: ModuleType(name) for name in ("aiter", "aiter.ops", "aiter.utility", "aiter.utility.fp4_utils")}
    made["aiter.ops"].__path__ = [os.path.join(os.environ["AITER_SOURCE"], "ops")]
    made["aiter.jit.utils.chip_info"] = SimpleNamespace(get_gfx=lambda: "gfx950")
    with open(os.path.join(os.environ["AITER_SOURCE"], "utility", "fp4_utils.py")) as file:
        own = [node for node in ast.parse(file.read()).body if getattr(node, "name", "") == "e8m0_shuffle"]
    exec(compile(ast.Module(own, []), "fp4_utils.py", "exec"), vars(made["aiter.utility.fp4_utils"]))
    return made


def converted(raw, backend, tag, hidden, intermediate):
    hidden, intermediate = oracle.mxfp4_round_up_hidden_size_and_intermediate_size(
        backend, hidden, intermediate, activation=MoEActivation.SILU)
    loaded = {}
    for role, n, k in (("w13", 2 * intermediate, hidden), ("w2", hidden, intermediate)):
        for name, columns in ((role, k // 2), (role + "_scale", k // 32)):
            loaded[name] = Parameter(torch.zeros((EXPERTS, n, columns), dtype=torch.uint8), requires_grad=False)
            fill(loaded[name], raw[name], role == "w13")
    made = oracle.convert_weight_to_mxfp4_moe_kernel_format(
        backend, torch.nn.Module(), *(loaded[name] for name in ("w13", "w2", "w13_scale", "w2_scale")),
        activation=MoEActivation.SILU)
    return {f"vllm.{tag}.{name}": t.data.view(torch.uint8)
            for name, t in zip(("w13", "w2", "w13_scale", "w2_scale"), made)}


def main(directory):
    torch.manual_seed(1)
    raw, made = random_layer(192, 160, False), {}
    with mock.patch.object(oracle, "current_platform", ROCM), mock.patch.dict(sys.modules, packages()):
        for backend, tag in (("AITER_MXFP4_BF16", "aiter_a16w4_2"), ("AITER_MXFP4_MXFP4", "aiter_w4a4_2")):
            made |= converted(raw, oracle.Mxfp4MoeBackend[backend], tag, 192, 160)
    write(directory, "vllm_aiter", "halves", raw, made, 192, 160)


if __name__ == "__main__":
    main(sys.argv[1])
