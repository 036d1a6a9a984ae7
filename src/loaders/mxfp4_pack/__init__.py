"""Reads what `mxfp4-pack convert` writes: manifest, packed tensors, canary. Both loaders, `mxfp4_pack.vllm` and
`mxfp4_pack.sglang`, use it; mxfp4-pack-format(5) describes what is read.

What needs torch is imported when it is first used, so that manifests can be read without it.
"""

from ._advice import convert_again, installed
from ._entries import Entry, Misfit, Refused, Unconverted, View
from .manifest import (FORMAT_VERSION, MANIFEST, METHOD, Manifest, check_version, is_method, is_packed, kernel_of,
                       read_config)

__all__ = ["FORMAT_VERSION", "MANIFEST", "METHOD", "Entry", "Manifest", "Misfit", "PackedSet", "RawLayer", "Refused",
           "Unconverted", "View", "check_version", "convert_again", "difference", "fall_back", "in_memory_order",
           "installed", "is_method", "is_packed", "kernel_of", "misfit", "read_config"]


def __getattr__(name):
    if name == "PackedSet":
        from .packed_set import PackedSet
        return PackedSet
    if name in ("RawLayer", "fall_back"):
        from . import fallback
        return getattr(fallback, name)
    if name in ("difference", "in_memory_order", "misfit"):
        from . import compare
        return getattr(compare, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
