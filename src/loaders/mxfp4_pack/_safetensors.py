"""Headers of safetensors files."""

import math
from typing import NamedTuple

from ._entries import BYTES, DTYPES
from ._errors import Refused, printable
from ._fields import HEADER_SHAPE, NAME
from ._files import open_file, parse_json, size_of
from ._forms import List, Map, Whole, check

LONGEST_HEADER = 100_000_000  # bytes, as in the safetensors library
TENSORS = Map({"dtype": NAME, "shape": HEADER_SHAPE, "data_offsets": List(Whole(), 2, 2)})


class Stored(NamedTuple):
    """A tensor in a file: its dtype in torch (in safetensors, if the loaders know no torch dtype), its shape, and its
    bytes in the file."""
    dtype: str
    shape: tuple
    begin: int
    end: int


def read_header(path):
    """({name: Stored}, number of bytes before the data) of a file whose header and size agree."""
    shown = printable(path)
    try:
        with open_file(path) as file:
            total = size_of(file)
            length = int.from_bytes(file.read(8), "little")
            text = file.read(min(length, LONGEST_HEADER, total))
    except OSError as error:
        raise Refused(f"{shown}: {error.strerror}") from error
    if total < 8 or length > min(LONGEST_HEADER, total - 8):
        raise Refused(f"{shown}: its header is longer than the file; damaged?")
    fields = parse_json(text, f"{shown}: header")
    if isinstance(fields, dict):
        fields.pop("__metadata__", None)
    check(fields, TENSORS, f"{shown}: header")
    found = {name: stored(t, 8 + length) for name, t in fields.items()}
    at = 8 + length
    for name, t in sorted(found.items(), key=lambda item: item[1].begin):
        if t.begin != at or t.end < at or (t.dtype in BYTES and t.end - t.begin != math.prod(t.shape) * BYTES[t.dtype]):
            raise Refused(f"{shown}: {name}: its bytes are not those of its shape, or lie over another tensor's")
        at = t.end
    if at != total:
        raise Refused(f"{shown} has {total} bytes, its header says {at}")
    return found, 8 + length


def stored(t, start):
    begin, end = t["data_offsets"]
    return Stored(DTYPES.get(t["dtype"], t["dtype"]), tuple(t["shape"]), start + begin, start + end)
