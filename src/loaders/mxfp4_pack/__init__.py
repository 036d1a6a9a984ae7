"""mxfp4-pack in Python: its commands (`convert`, `verify`, ..), and `open`, which reads an output: manifest, packed
tensors, canary. Both loaders, `mxfp4_pack.vllm` and `mxfp4_pack.sglang`, use this reader. mxfp4-pack-format(5)
describes the format.

Modules that need torch are imported on first use, so that manifests can be read without torch.
"""

import collections.abc
import typing

from ._advice import convert_again, installed, version_of_package
from ._entries import kernel_of
from ._errors import Misfit, Refused, Unconverted
from .commands import Failed, convert, inspect, plan, unpack, verify
from .commands import open_output as open  # noqa: A004
from .manifest import FORMAT_VERSION, MANIFEST, METHOD, Manifest, check_version, is_method, is_packed, read_config

__all__ = ["FORMAT_VERSION", "MANIFEST", "METHOD", "Failed", "Manifest", "Misfit", "PackedSet", "UnpackedLayer",
           "Refused", "Unconverted", "__version__", "check_version", "convert", "convert_again", "difference", "fall_back",
           "in_memory_order", "inspect", "installed", "is_method", "is_packed", "kernel_of", "misfit", "open", "plan",
           "read_config", "unpack", "update", "verify"]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__") and name not in __all__)])


def update(model: typing.Any, names: collections.abc.Sequence[str],
           tensors: collections.abc.Sequence[typing.Any]) -> None:
    """Packs new unpacked experts into a serving model. `model`: the engine's model on this rank. vLLM's apply_model
    provides it, and SGLang's update_weights_from_tensor passes it to a loader of --custom-weight-loader. `names`: names
    of the checkpoint's tensors. `tensors`: whole tensors on every rank, with the checkpoint's dtypes and shapes, on the
    GPU or the host. The engine's tensors get the bytes that `convert` would write, on the current CUDA stream. Raises
    `Refused` before anything is packed, except for NaN scales. Gate and up of an expert must be in the same call."""
    if not hasattr(model, "modules"):
        raise Refused(f"{type(model).__name__} is not an engine's model")
    if any(hasattr(module, "mxfp4_pack") for module in model.modules()):
        from .sglang import updates as engine
    else:
        from .vllm import live as engine
    engine.update(model, names, tensors)


def __getattr__(name: str) -> typing.Any:
    if name == "__version__":
        return version_of_package()
    if name == "PackedSet":
        from .packed_set import PackedSet
        return PackedSet
    if name in ("UnpackedLayer", "fall_back"):
        from . import fallback
        return getattr(fallback, name)
    if name in ("difference", "in_memory_order", "misfit"):
        from . import compare
        return getattr(compare, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
