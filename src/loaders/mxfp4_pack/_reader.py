"""Reads parts of files into tensors with the C library's threads, which never wait for Python's threads."""

import ctypes
import os
import weakref
from typing import NamedTuple

import torch

from ._library import Part, check, library

ALONE, SHARED = 12, 16  # threads of a process; of each process, if several read at the same time
HOST = -1  # the library's number for the host's memory
NO_DEVICE = 5  # MXFP4_PACK_DEVICE


class Run(NamedTuple):
    """A range of a file, and the addresses for its bytes and its checksum; None: not stored."""
    path: str
    offset: int
    bytes: int
    target: int | None
    hash: int | None = None


class Reader:
    """Reads into the memory of one device, or of the host if the library cannot reach the device."""

    def __init__(self, device, threads=None):
        self.device, self.library = device, library()
        threads = threads or (SHARED if ranks() > 1 else ALONE)
        handle = ctypes.c_void_p()
        status = self.library.mxfp4_pack_open_reader(number_of(device), threads, ctypes.byref(handle))
        self.reaches = device.type in ("cpu", "cuda") and status != NO_DEVICE
        if status == NO_DEVICE:  # a ROCm device, or a library without CUDA
            status = self.library.mxfp4_pack_open_reader(HOST, threads, ctypes.byref(handle))
        check(self.library, status)
        self.handle = handle
        self.held = {}  # {request: memory that it writes to}
        self.close = weakref.finalize(self, self.library.mxfp4_pack_close_reader, handle)

    def expect(self, bytes_):
        """Sets the bytes that all processes of this host read. The library decides from this number whether the files
        fit into the page cache."""
        check(self.library, self.library.mxfp4_pack_expect_read(self.handle, bytes_))

    def cached(self):
        """(read, before, now): bytes, and how many of them the page cache had and has; -1 if the system does not tell."""
        numbers = [ctypes.c_int64() for _ in range(3)]
        check(self.library, self.library.mxfp4_pack_cached_bytes(self.handle, *map(ctypes.byref, numbers)))
        return tuple(number.value for number in numbers)

    def read(self):
        """The bytes of all reads that have begun. Cheap, unlike `cached`, which asks for each range of the files."""
        number = ctypes.c_int64()
        check(self.library, self.library.mxfp4_pack_cached_bytes(self.handle, ctypes.byref(number), None, None))
        return number.value

    def begin(self, runs, owners):
        """Begins to read into the memory of `owners`, which nothing else may use until the request is done. Returns the
        request's number."""
        if self.reaches and self.device.type == "cuda":  # wait for other work that used this memory
            torch.cuda.current_stream(self.device).synchronize()
        size = ctypes.sizeof(Part)
        parts = (Part * len(runs))(*(Part(size, os.fsencode(run.path), *run[1:]) for run in runs))
        number = ctypes.c_int64()
        check(self.library, self.library.mxfp4_pack_begin_read(self.handle, parts, len(parts), ctypes.byref(number)))
        self.held[number.value] = owners
        return number.value

    def finish(self, number):
        """Waits until a request is complete. Returns the time of its last byte, in terms of time.monotonic()."""
        end = ctypes.c_int64()
        check(self.library, self.library.mxfp4_pack_finish_read(self.handle, number, ctypes.byref(end)))
        del self.held[number]
        return end.value / 1e9


def ranks():
    """The processes that load the model. Engines start torch's process group before they make a model."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def number_of(device):
    """The library's number for a device's memory."""
    if device.type != "cuda":
        return HOST
    return torch.cuda.current_device() if device.index is None else device.index
