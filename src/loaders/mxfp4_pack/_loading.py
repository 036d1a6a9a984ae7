"""Reads the layers of a set before they are asked for."""

import ctypes
import os
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch

from . import _xxh3
from ._entries import Refused, path_of
from ._reader import Reader, Run
from ._safetensors import read_header

HASH = 16  # bytes of a checksum


def verifies():
    """Whether the bytes are compared with the manifest's checksums on their way."""
    return os.environ.get("MXFP4_PACK_VERIFY", "0") not in ("", "0")


class Request(NamedTuple):
    """A layer's entries {(role, part): Entry}, the rank's experts (global numbers, in order), the device."""
    entries: dict
    experts: tuple
    device: torch.device

    name = property(lambda self: next(iter(self.entries.values())).name)
    bytes = property(lambda self: sum(e.bytes // e.experts * len(self.experts) for e in self.entries.values()))


@dataclass
class Progress:
    """The layers and bytes read since the last report."""
    layers: int = 0
    bytes: int = 0
    begin: float = 0.0
    seconds: float = 0.0  # from the first layer's start to the last byte
    said: float = 0.0  # when the log had the last line of it
    verified: bool = False
    read: int = 0  # bytes, those that were only compared too
    cached_before: int = 0  # how many of them the page cache had; below 0: the system does not tell
    cached_now: int = 0

    @property
    def page_cache(self):
        """How the page cache did, as words for a log."""
        if min(self.cached_before, self.cached_now) < 0:
            return "page cache unknown"
        before, now, read = (number / 1e9 for number in (self.cached_before, self.cached_now, self.read))
        return f"the page cache had {before:.3f} of {read:.3f} GB and has {now:.3f}"


@dataclass
class Started:
    """A layer that is expected. hashes: {key: those of all experts}, empty where nobody asks for them."""
    request: Request
    tensors: dict
    hashes: dict
    number: int | None = None  # the reader's; None: nothing is read yet


class Loading:
    """`expect` begins to read a layer, so that files are read while the engine builds the model and loads its other
    weights. `layer` returns the layer. A GPU that the C library cannot reach gets its layers through the host's memory,
    each on request."""

    def __init__(self, directory, start_bytes):
        """start_bytes: the bytes that all processes of this host read during the whole start."""
        self.directory = directory
        self.start_bytes = start_bytes
        self.verify = verifies()
        self.progress = Progress(verified=self.verify)
        self.started, self.files = {}, {}
        self.reader = None

    def expect(self, request, memory=None):
        """memory: {key: tensor of bytes} to read into, else new tensors."""
        if self.reader is None:
            self.reader = Reader(request.device)
            self.reader.expect(self.start_bytes)
        if not self.progress.begin:
            self.progress.begin = time.monotonic()
        tensors, hashes = {}, {}
        for key, entry in request.entries.items():
            self.stored(entry)
            shape, dtype = (len(request.experts), *entry.shape[1:]), getattr(torch, entry.torch_dtype)
            tensors[key] = memory[key].view(dtype).view(shape) if memory else torch.empty(shape, dtype=dtype,
                                                                                          device=request.device)
            if self.verify:
                hashes[key] = ctypes.create_string_buffer(HASH * entry.experts)
        started = self.started[request.name] = Started(request, tensors, hashes)
        if self.reader.reaches:
            started.number = self.begin(started, tensors)

    def begin(self, started, tensors):
        """Starts to read a layer into `tensors`."""
        runs = []
        for key, entry in started.request.entries.items():
            path, stored = self.stored(entry)
            hashes = ctypes.addressof(started.hashes[key]) if self.verify else None
            runs += runs_of(path, stored.begin, entry, (started.request.experts, tensors[key].data_ptr(), hashes))
        return self.reader.begin(runs, (tensors, started))

    def layer(self, request):
        """{(role, part): tensor}: the rank's experts as they are stored, all read."""
        if request.name not in self.started or self.started[request.name].request != request:
            self.forget(request.name)
            self.expect(request)
        started = self.started.pop(request.name)
        end = self.finish(started)
        for key, entry in request.entries.items():
            if self.verify and _xxh3.hexdigest(started.hashes[key].raw) != entry.xxh3_128:
                raise Refused(f"{entry.file}: {entry.name}: its bytes do not have the manifest's checksum; damaged")
            copy_repeated(started.tensors[key], request.experts)
        self.count(request, end)
        if not self.started:
            self.close()
        return started.tensors

    def forget(self, name):
        """Waits for reads of a layer that are in progress, because they write to its tensors' memory."""
        if name in self.started:
            self.finish(self.started.pop(name))

    def finish(self, started):
        """When the layer's last byte was in its place."""
        if started.number is not None:
            return self.reader.finish(started.number)
        host = {key: torch.empty_like(tensor, device="cpu") for key, tensor in started.tensors.items()}
        self.reader.finish(self.begin(started, host))
        with torch.inference_mode():  # tensors may have been made in it, and then change only in it
            for key, tensor in started.tensors.items():
                tensor.copy_(host[key])
        return time.monotonic()

    def stored(self, entry):
        """(path, Stored) of a packed tensor, in a file that agrees with the manifest."""
        if entry.file not in self.files:
            path = path_of(self.directory, entry.file)
            self.files[entry.file] = path, read_header(path)[0]
        path, header = self.files[entry.file]
        if entry.name not in header:
            raise Refused(f"{path} has no {entry.name}")
        found = header[entry.name]
        if found.shape != entry.shape:
            raise Refused(f"{path}: {entry.name}: shape is {found.shape}, manifest: {entry.shape}")
        if found.dtype != entry.torch_dtype:
            raise Refused(f"{path}: {entry.name}: dtype is torch.{found.dtype}, manifest: {entry.torch_dtype}")
        return path, found

    def count(self, request, end):
        self.progress.layers += 1
        self.progress.bytes += request.bytes
        self.progress.seconds = max(self.progress.seconds, end - self.progress.begin)

    def drop(self):
        """Drops the expected layers and their data."""
        if self.reader is not None:
            self.close()
        self.started.clear()

    def close(self):
        read, before, now = self.reader.cached()
        self.progress.read += read
        self.progress.cached_before += before
        self.progress.cached_now += now
        self.reader.close()
        self.reader = None


def copy_repeated(tensor, experts):
    """If an expert has several rows, only the last row is read; it is copied to the others."""
    row_of = {expert: row for row, expert in enumerate(experts)}
    for row, expert in enumerate(experts):
        if row_of[expert] != row:
            tensor[row].copy_(tensor[row_of[expert]])


def runs_of(path, begin, entry, wanted):
    """The runs for an entry that begins at byte `begin` of the file. `wanted`: the experts, the address of a tensor with one
    row for each, and that of all experts' checksums or None. With these every expert is read, in order, since the
    manifest's checksum is that of all; without, experts that lie behind each other in file and tensor are one run."""
    experts, target, hashes = wanted
    size = entry.bytes // entry.experts
    row_of = {expert: row for row, expert in enumerate(experts)}
    if hashes is not None:
        return [Run(path, begin + e * size, size, target + row_of[e] * size if e in row_of else None, hashes + e * HASH)
                for e in range(entry.experts)]
    runs = []
    for expert, row in row_of.items():
        offset, place = begin + expert * size, target + row * size
        if runs and (runs[-1].offset + runs[-1].bytes, runs[-1].target + runs[-1].bytes) == (offset, place):
            runs[-1] = runs[-1]._replace(bytes=runs[-1].bytes + size)
        else:
            runs.append(Run(path, offset, size, place))
    return runs
