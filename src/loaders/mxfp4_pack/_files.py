"""This module opens all files, so that no file can make an engine wait or fill its memory."""

import errno
import json
import math
import os
import stat
from typing import Any, BinaryIO

from ._errors import Refused, printable

CONFIG_LIMIT = 16 << 20  # bytes of config.json and of layout files; the program has the same limit
INDEX_LIMIT = 256 << 20
MANIFEST_LIMIT = 256 << 20
TABLE_LIMIT = 1 << 30
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def open_file(path: str) -> BinaryIO:
    """Opens a regular file to read its bytes. Raises OSError if it cannot be opened, and `Refused` for a FIFO, a socket, a
    device or a folder."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise Refused(f"{printable(path)}: not a regular file") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise Refused(f"{printable(path)}: not a regular file")
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def size_of(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def read_file(path: str, limit: int | None = None) -> bytes:
    """The content of a regular file, up to its size at opening. Raises like open_file(), and `Refused` for a file of
    more than `limit` bytes."""
    with open_file(path) as file:
        size = size_of(file)
        if limit is not None and size > limit:
            raise Refused(f"{printable(path)}: {size} bytes, at most {limit} were expected")
        return file.read(size)


def parse_json(data: bytes, what: str) -> Any:
    """The value of a JSON text in UTF-8. Raises `Refused` if the text is no JSON, is nested too deeply, or has a number
    that is not finite. what: the name of the text in messages."""
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
        return json.loads(text, parse_constant=finite, parse_float=finite)
    except RecursionError:
        raise Refused(f"{what}: nested too deeply") from None
    except ValueError as error:
        raise Refused(f"{what}: not JSON ({printable(str(error))}); damaged?") from None


def finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


def read_json(path: str, limit: int) -> Any:
    """The value of a JSON file. Raises as read_file() and parse_json()."""
    return parse_json(read_file(path, limit), printable(path))
