"""The packed tensors in a manifest, checked before they are used to read files, and the name of their kernel."""

import math
import os
from typing import Any, NamedTuple

from ._errors import Misfit, Refused, Unconverted, printable

__all__ = ["BYTES", "DTYPES", "ROLES", "Entry", "Misfit", "Refused", "Unconverted", "View", "counted", "entry_of",
           "kernel_of", "kernels_of", "path_of", "safe_name"]

BYTES = {"bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1, "bfloat16": 2,
         "float16": 2, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8}
# of safetensors -> of torch
DTYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
          "F8_E8M0": "float8_e8m0fnu", "BF16": "bfloat16", "F16": "float16", "I16": "int16", "U16": "uint16",
          "I32": "int32", "U32": "uint32", "F32": "float32", "I64": "int64", "U64": "uint64", "F64": "float64"}

ROLES = ("w13", "w2")


def counted(count: int, what: str) -> str:
    """1 file, 2 files."""
    return f"{count} {what}{'' if count == 1 else 's'}"


class View(NamedTuple):
    """The engine's view of a stored contiguous tensor; strides in elements."""
    torch_dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Entry(NamedTuple):
    """A packed tensor: one part of one role of a layer; the first axis is the experts."""
    name: str
    parameter: str  # the engine's parameter: w13_weight_scale
    file: str
    torch_dtype: str
    shape: tuple[int, ...]
    view: View | None
    experts: int
    xxh3_128: str

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * BYTES[self.torch_dtype]


def entry_of(t):
    """The entry of a tensor in a set's table. Its fields must have their types (_fields.py)."""
    view = t.get("view") or unsaid_view(t)
    if view is not None:
        view = View(view["dtype"], tuple(view["shape"]), tuple(view["strides"]))
    entry = Entry(t["name"], t["parameter"], safe_name(t["file"]), t["torch_dtype"], tuple(t["shape"]), view,
                  t["experts"], t["xxh3_128"])
    if DTYPES.get(t["dtype"]) != entry.torch_dtype or entry.shape[0] != entry.experts:
        raise Refused(f"{entry.name}: dtype, shape and experts do not agree")
    if view is not None:
        check_view(entry)
    return entry


def unsaid_view(t):
    """The view of vLLM's tensors for CPUs, which the manifest omits: the sizes of the unpacked tensor."""
    if t.get("layout") not in ("vllm_cpu.codes", "vllm_cpu.scales") or len(t["shape"]) != 4:
        return None
    experts, blocks, columns, rows = t["shape"]
    shape = experts, blocks * rows, columns
    return {"dtype": t["torch_dtype"], "shape": shape, "strides": (shape[1] * columns, columns, 1)}


def check_view(entry):
    """Refuses a view unless it is the stored tensor with its axes in another order: every element occurs exactly
    once."""
    view = entry.view
    if len(view.strides) != len(view.shape):
        raise Refused(f"{entry.name}: strides {view.strides} are not as many as sizes {view.shape}")
    axes = sorted((axis for axis in zip(view.strides, view.shape) if axis[1] > 1), reverse=True)
    expected = 1
    for stride, size in reversed(axes):
        if stride != expected:
            raise Refused(f"{entry.name}: strides {view.strides} of shape {view.shape} overlap or leave holes")
        expected *= size
    if math.prod(view.shape) * BYTES.get(view.torch_dtype, 0) != entry.bytes:
        raise Refused(f"{entry.name}: the view {view.shape} is not as large as the stored tensor")


def safe_name(name):
    """Refuses a file name in the manifest unless it is relative and below the directory, judged by its text."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\\" in part or not part.isprintable() for part in parts):
        raise Refused(f"unsafe file name {name!r}")
    return name


def path_of(directory, name):
    """The path of a file of the manifest. The file may be a link within the directory. In a snapshot of Hugging Face's
    cache it may also be a link into the blobs of the same entry. The program follows the same links."""
    path = os.path.join(directory, safe_name(name))
    root, file = os.path.realpath(directory), os.path.realpath(path)
    if is_below(file, root):
        return path
    snapshots = os.path.dirname(root)
    if os.path.basename(snapshots) == "snapshots" and is_below(file, os.path.join(os.path.dirname(snapshots), "blobs")):
        return path
    raise Refused(f"{printable(path)} is a link out of the directory; put the file itself there")


def is_below(path, directory):
    return os.path.commonpath([directory, path]) == directory


def kernel_of(fields: dict[str, Any]) -> str:
    """The engine's own name for a set's backend: the value for --moe-backend or --moe-runner-backend, the first if
    there are several. "auto" if the engine has no name for the backend and chooses by the GPU."""
    return kernels_of(fields)[0]


def kernels_of(fields: dict[str, Any]) -> list[str]:
    if "layout_file" in fields:
        return [fields["layout_file"].get("made_with", {}).get("moe-backend", "auto")]
    settings = [value for name, value in fields["requires"].items() if name.startswith("moe_")]
    return settings[0].split(" or ") if settings else ["auto"]
