"""The weights that SGLang itself loads from a packed directory. Facts about SGLang are from v0.5.17 to v0.5.23: its
loaders take tensors of any device, and DeepSeek-V4's makes BF16 of FP8 where a tensor is."""

from mxfp4_pack import _rest

CHOICES = ("disable_mmap", "prefetch", "drop_cache_after_load")  # of server arguments: how files are read


def expect(directory, device):
    """To be called while SGLang builds a model."""
    if device.type == "cuda":
        from sglang.srt.model_loader import loader
        _rest.expect(directory, device, loader, "buffered_multi_thread_safetensors_weights_iterator", is_default)


def is_default(max_workers=None, **given):
    return not any(given.get(choice) for choice in CHOICES)
