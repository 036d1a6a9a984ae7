"""--load-format ipc_cache: `vllm preload` holds the converted weights, and an engine maps them.

vLLM builds the model without memory, registers the daemon's parameters, and asks each method only for its kernel.
vLLM's MXFP4 methods support this for one kernel of SM10x. A packed layer needs nothing but its parameters and the
marks of a converted canary, so that every kernel works whose weights are parameters.
"""

import copy

import torch
from mxfp4_pack import Refused
from vllm.model_executor.layers.quantization import mxfp4 as engine

FORMAT = "ipc_cache"
REASON = "its daemon passes parameters only, and the weights of {} are other objects"


def is_supported(method):
    """Whether a method's layers consist of parameters that vLLM's own conversion function returns."""
    classes = tuple(getattr(engine, name) for name in ("Mxfp4MoEMethod", "GptOssMxfp4MoEMethod") if hasattr(engine, name))
    others = method.packed.is_triton or method.mxfp4_backend.name == "HUMMING" or method.packed.fallback is not None
    return isinstance(method, classes) and not others


def is_mapped():
    """Whether vLLM asks for the kernels of a model whose parameters are a daemon's."""
    try:
        from vllm.model_executor.utils import is_weights_pre_processed
    except ImportError:  # before vllm preload existed
        return False
    return is_weights_pre_processed()


def take(layer, method):
    """{(role, part): the daemon's tensor}. The layer gets unpacked parameters without memory in their place, as vLLM's
    method expects them."""
    tensors = {key: layer._parameters.get(entry.parameter) for key, entry in method.entries.items()}
    experts = len(method.experts_of(layer))
    for key, entry in method.entries.items():
        bytes_ = entry.bytes // entry.experts * experts
        if tensors[key] is None or tensors[key].is_meta or tensors[key].nbytes != bytes_:
            raise Refused(f"{entry.name}: vllm preload holds no {entry.parameter} of {bytes_} bytes. Start it again with "
                          "this directory and this mxfp4-pack")
    probe = copy.copy(layer)
    probe._parameters = {}
    with torch.device("meta"):
        method.create_unpacked(copy.copy(method), probe)
    layer._parameters.update(probe._parameters)
    return {key: tensor.data for key, tensor in tensors.items()}

