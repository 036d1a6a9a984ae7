"""What vLLM asks of its platform, answered as on a machine with an AMD GPU and a group of ranks."""

import sys
from types import ModuleType
from unittest import mock

import vllm.distributed
from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle
from vllm.model_executor.layers.quantization.utils import mxfp4_utils

CDNA = {"gfx942": 3, "gfx950": 4}


def exchange_rocm(exchange, stack, gpu, tp, platform):
    """platform: says that it is ROCm's."""
    rocm = ModuleType("vllm.platforms.rocm")
    rocm.on_gfx1250, rocm.get_cdna_version = lambda: False, lambda: CDNA[gpu]
    rocm.on_gfx942, rocm.on_gfx950 = lambda: gpu == "gfx942", lambda: gpu == "gfx950"
    stack.enter_context(mock.patch.dict(sys.modules, {"vllm.platforms.rocm": rocm}))
    for module in (oracle, mxfp4_utils):
        exchange(module, "current_platform", platform)
    exchange(vllm.distributed, "get_tensor_model_parallel_world_size", lambda: tp)
