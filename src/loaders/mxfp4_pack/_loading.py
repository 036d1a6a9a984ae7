"""Reads the layers of a set before the engine requests them."""

import ctypes
import os
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ._entries import Refused, path_of
from ._library import hexdigest
from ._reader import Reader, Run
from ._safetensors import read_header

HASH = 16  # bytes of a checksum


def verifies():
    """Whether the loader compares the bytes with the manifest's checksums while reading."""
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
    expected: int = 0  # layers
    expected_bytes: int = 0
    begin: float = 0.0
    seconds: float = 0.0  # from the first layer's start to the last byte
    said: float = 0.0  # time of the last line in the log
    verified: bool = False
    read: int = 0  # bytes, including those that were only compared
    cached_before: int = 0  # how many of them were in the page cache; below 0: unknown
    cached_now: int = 0

    @property
    def page_cache(self):
        """The page cache's share, as text for a log."""
        if min(self.cached_before, self.cached_now) < 0:
            return "page cache unknown"
        before, now, read = (number / 1e9 for number in (self.cached_before, self.cached_now, self.read))
        return f"the page cache had {before:.3f} of {read:.3f} GB and has {now:.3f}"


@dataclass
class Started:
    """An expected layer. hashes: {key: hashes of all experts}, empty unless the checksums are compared."""
    request: Request
    tensors: dict
    hashes: dict
    number: int | None = None  # the reader's request; None: not begun


class Loading:
    """Reads layers in the background. `expect` begins to read a layer, so that files are read while the engine builds
    the model and loads its other weights. `layer` returns the layer. If the C library cannot reach a GPU, its layers
    are read on request, through the host's memory."""

    def __init__(self, directory, start_bytes):
        """start_bytes: the bytes that all processes of this host read during the whole start."""
        self.directory = directory
        self.start_bytes = start_bytes
        self.verify = verifies()
        self.progress = Progress(verified=self.verify)
        self.started, self.files = {}, {}
        self.reader = None

    def expect(self, request, memory=None):
        """memory: {key: tensor of bytes} to read into; by default new tensors."""
        if self.reader is None:
            self.reader = Reader(request.device)
            self.reader.expect(self.start_bytes)
        if not self.progress.begin:
            self.progress.begin = time.monotonic()
        self.count_expected(request, 1)
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
        """{(role, part): tensor}: the rank's experts in stored form, completely read."""
        if request.name not in self.started or self.started[request.name].request != request:
            self.forget(request.name)
            self.expect(request)
        started = self.started.pop(request.name)
        end = self.finish(started)
        for key, entry in request.entries.items():
            if self.verify and hexdigest(started.hashes[key].raw) != entry.xxh3_128:
                raise Refused(f"{entry.file}: {entry.name}: its bytes do not have the manifest's checksum; damaged")
            copy_repeated(started.tensors[key], request.experts)
        self.count(request, end)
        if not self.started:
            self.close()
        return started.tensors

    def forget(self, name):
        """Waits for reads of a layer that are in progress, because they write to its tensors' memory."""
        if name in self.started:
            self.count_expected(self.started[name].request, -1)
            self.finish(self.started.pop(name))

    def count_expected(self, request, layers):
        self.progress.expected += layers
        read = sum(e.bytes for e in request.entries.values()) if self.verify else request.bytes  # checksums cover all experts
        self.progress.expected_bytes += layers * read

    def finish(self, started):
        """Waits for a layer. Returns the time when its last byte was in place."""
        if started.number is not None:
            return self.reader.finish(started.number)
        host = {key: torch.empty_like(tensor, device="cpu") for key, tensor in started.tensors.items()}
        self.reader.finish(self.begin(started, host))
        with torch.inference_mode():  # tensors made in this mode can only be changed in it
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

    def bytes_so_far(self):
        """The bytes that the reader's threads have read or are reading, also for layers that nobody has asked for."""
        return self.progress.read + (self.reader.read() if self.reader is not None else 0)

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
    """The runs for an entry that begins at byte `begin` of the file. `wanted`: the experts, the address of a tensor
    with one row for each, and the address for all experts' checksums or None. The manifest's checksum covers all
    experts, so with checksums every expert is read, in order. Without checksums, experts that are consecutive in file
    and tensor are one run."""
    experts, target, hashes = wanted
    size = entry.bytes // entry.experts
    row_of = {expert: row for row, expert in enumerate(experts)}
    if hashes is not None:
        return [Run(path, begin + e * size, size, target + row_of[e] * size if e in row_of else None, hashes + e * HASH)
                for e in range(entry.experts)]
    places = list(row_of.items())
    first = [i for i in range(len(places)) if i == 0 or places[i] != (places[i - 1][0] + 1, places[i - 1][1] + 1)]
    return [Run(path, begin + places[i][0] * size, (end - i) * size, target + places[i][1] * size)
            for i, end in zip(first, [*first[1:], len(places)])]
