"""The installed vLLM's conversion of a set's canary, without a server."""

from types import SimpleNamespace

import torch
from vllm.model_executor.layers.quantization import mxfp4 as engine

from .quantization import PackedDeepseekV4Method, PackedGptOssMethod, compare_canary

METHODS = {"gpt_oss": PackedGptOssMethod, "deepseek_v4": PackedDeepseekV4Method}


def compare(packed, model_type, device):
    """Refuses a set that does not fit; any other exception: this vLLM cannot be asked."""
    original = getattr(engine, METHODS[model_type].converter)
    layer = SimpleNamespace(params_dtype=torch.bfloat16)
    compare_canary(packed, original, device, {"mxfp4_backend": backend_of(packed.kernel), "layer": layer})


def backend_of(kernel):
    """vLLM's enumerator for its --moe-backend; of several, the one with BF16 activations."""
    members = engine.Mxfp4MoeBackend.__members__
    return members.get(kernel.upper()) or members[kernel.upper() + "_MXFP4_BF16"]
