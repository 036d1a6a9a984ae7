"""Headers of safetensors files."""

import json
import math
import os
from typing import NamedTuple

from ._entries import BYTES, DTYPES, Refused

LONGEST_HEADER = 100_000_000  # bytes, as in the safetensors library
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


class Stored(NamedTuple):
    """A tensor in a file: torch's dtype (that of safetensors where the loaders know no other), shape, bytes of the file."""
    dtype: str
    shape: tuple
    begin: int
    end: int


def read_header(path):
    """({name: Stored}, number of bytes before the data) of a file whose header and size agree."""
    try:
        with open(path, "rb") as file:
            total = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            text = file.read(min(length, LONGEST_HEADER))
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    if total < 8 or length > min(LONGEST_HEADER, total - 8):
        raise Refused(f"{path}: its header is longer than the file; damaged?")
    try:
        fields = json.loads(text)
        fields.pop("__metadata__", None)
        found = {name: stored(t, 8 + length) for name, t in fields.items()}
    except MALFORMED as error:
        raise Refused(f"{path}: its header is damaged ({error!r})") from error
    at = 8 + length
    for name, t in sorted(found.items(), key=lambda item: item[1].begin):
        if t.begin != at or t.end < at or (t.dtype in BYTES and t.end - t.begin != math.prod(t.shape) * BYTES[t.dtype]):
            raise Refused(f"{path}: {name}: its bytes are not those of its shape, or lie over another tensor's")
        at = t.end
    if at != total:
        raise Refused(f"{path} has {total} bytes, its header says {at}")
    return found, 8 + length


def stored(t, start):
    begin, end = t["data_offsets"]
    shape = tuple(t["shape"])
    if not all(type(n) is int and n >= 0 for n in (begin, end, *shape)):
        raise ValueError("negative or no number")
    return Stored(DTYPES.get(t["dtype"], t["dtype"]), shape, start + begin, start + end)
