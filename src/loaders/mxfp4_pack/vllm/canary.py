"""The installed vLLM's conversion of a set's canary, without a server."""

from types import SimpleNamespace

import torch
from vllm.model_executor.layers.quantization import mxfp4 as engine

from .quantization import CONVERTERS, KERNELS, compare_canary


def compare(packed, model_type, device):
    """Refuses a set that does not fit; any other exception: this vLLM cannot be asked."""
    original = getattr(engine, CONVERTERS[model_type != "gpt_oss"])
    layer = SimpleNamespace(params_dtype=torch.bfloat16)
    compare_canary(packed, original, device, {"mxfp4_backend": backend_of(packed), "layer": layer})


def backend_of(packed):
    """vLLM's enumerator for a set: that of its --moe-backend, else the first that reads it."""
    members = engine.Mxfp4MoeBackend.__members__
    return members.get(packed.kernel.upper()) or members[KERNELS[packed.backend][0]]
