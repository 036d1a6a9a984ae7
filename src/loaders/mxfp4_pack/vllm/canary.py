"""The installed vLLM's conversion of a set's canary, without a server."""

from contextlib import contextmanager
from types import SimpleNamespace

import torch
from mxfp4_pack.learned import NOT_ALONE
from vllm import distributed
from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.quantization import mxfp4 as engine

from .conversion import CONVERTERS, compare_canary
from .quantization import KERNELS, MODELS


def compare(packed, model_type, device):
    """Refuses a set that does not fit. Any other exception means that this vLLM cannot convert the canary here."""
    if packed.layout_file is not None:
        raise NotImplementedError(NOT_ALONE)
    # vLLM converts Quark's experts as GPT-OSS's, which makes a difference for this backend.
    as_gpt_oss = model_type == "gpt_oss" or packed.backend == "aiter-triton" and model_type not in MODELS
    original = getattr(engine, CONVERTERS[not as_gpt_oss])
    moe = SimpleNamespace(has_bias=model_type == "gpt_oss", activation=SimpleNamespace(is_gated=True))
    given = {"mxfp4_backend": backend_of(packed), "layer": SimpleNamespace(params_dtype=torch.bfloat16, moe_config=moe)}
    if packed.backend == "humming-w4a8":
        from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp8Dynamic
        given["activation_key"] = kMxfp8Dynamic  # as the models that it takes ask for
    with set_current_vllm_config(bare_config(device)), tensor_parallel(packed):
        compare_canary(packed, original, device, given)


@contextmanager
def tensor_parallel(packed):
    """On ROCm, vLLM's conversion asks for the number of ranks, which are not initialised here."""
    original = distributed.get_tensor_model_parallel_world_size
    distributed.get_tensor_model_parallel_world_size = lambda: packed.moe_tp_size
    try:
        yield
    finally:
        distributed.get_tensor_model_parallel_world_size = original


def bare_config(device):
    """vLLM's settings for an unspecified model."""
    vllm = VllmConfig(device_config=DeviceConfig(device=device.type))
    vllm.model_config = SimpleNamespace(dtype=torch.bfloat16, quantization_config=None,  # converters read these
                                        hf_config=None)
    return vllm


def backend_of(packed):
    """vLLM's enumerator for a set: that of its --moe-backend, or the first that reads the set."""
    members = engine.Mxfp4MoeBackend.__members__
    names = [name for name in (packed.kernel.upper(), KERNELS[packed.backend][0]) if name in members]
    if not names:  # CUTLASS in vLLM before 0.32.0
        raise NotImplementedError(f"this vLLM converts for {packed.kernel} in a model alone")
    return members[names[0]]
