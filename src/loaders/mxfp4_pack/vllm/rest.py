"""The weights that vLLM itself loads from a packed directory. Facts about vLLM are from v0.26.0 and v0.33.0."""

from mxfp4_pack import _rest
from vllm.model_executor.model_loader import default_loader, weight_utils

LAZY = (None, "lazy")  # strategies that read a tensor when a model asks for it


def expect(directory, device, vllm):
    """To be called while vLLM builds a model. vllm: its config. A rank of a pipeline needs few of the tensors, and vLLM
    does not read the others."""
    if device.type == "cuda" and vllm.parallel_config.pipeline_parallel_size == 1:
        _rest.expect(directory, device, default_loader, "safetensors_weights_iterator", is_lazy, in_order)


def is_lazy(use_tqdm=False, strategy=None, *args, **given):
    return given.get("safetensors_load_strategy", strategy) in LAZY


def in_order(files):
    return sorted(files, key=getattr(weight_utils, "_natural_sort_key", None))
