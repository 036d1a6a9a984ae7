"""Reads the layers of a set before they are asked for."""

import os
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch

from . import _xxh3
from ._entries import Refused, path_of
from ._safetensors import read_header
from ._stream import PIECE, Job, Reader


def verifies():
    """Whether the bytes are compared with the manifest's checksums on their way."""
    if os.environ.get("MXFP4_PACK_VERIFY", "0") in ("", "0"):
        return False
    if _xxh3.xxhash is None:
        raise Refused("MXFP4_PACK_VERIFY is set and the xxhash module is missing. Run: python3 -m pip install xxhash")
    return True


class Request(NamedTuple):
    """A layer's entries {(role, part): Entry}, the rank's experts (global numbers, in order), the device."""
    entries: dict
    experts: tuple
    device: torch.device

    name = property(lambda self: next(iter(self.entries.values())).name)
    bytes = property(lambda self: sum(e.bytes // e.experts * len(self.experts) for e in self.entries.values()))


@dataclass
class Progress:
    """What was read since the last report."""
    layers: int = 0
    bytes: int = 0
    begin: float = 0.0
    seconds: float = 0.0  # from the first layer's start to the last byte
    said: float = 0.0  # when the log had the last line of it
    verified: bool = False


class Loading:
    """`expect` names a layer that the engine has and begins to read it, so that the files are read while the engine
    builds the model and loads the rest of it. `layer` gives it."""

    def __init__(self, directory):
        self.directory = directory
        self.verify = verifies()
        self.progress = Progress(verified=self.verify)
        self.started, self.headers = {}, {}
        self.reader = None

    def expect(self, request, memory=None):
        """memory: {key: tensor of bytes} to read into, else new tensors."""
        if self.reader is None:
            self.reader = Reader()
        if not self.progress.begin:
            self.progress.begin = time.monotonic()
        tensors, pending = {}, {}
        for key, entry in request.entries.items():
            begin = self.stored(entry).begin
            shape, dtype = (len(request.experts), *entry.shape[1:]), getattr(torch, entry.torch_dtype)
            tensors[key] = memory[key].view(dtype).view(shape) if memory else torch.empty(shape, dtype=dtype,
                                                                                          device=request.device)
            jobs = jobs_of(path_of(self.directory, entry.file), begin, entry, (request.experts, tensors[key]), self.verify)
            pending[key] = self.reader.start(jobs, tensors[key].device)
        self.started[request.name] = request, tensors, pending

    def layer(self, request):
        """{(role, part): tensor}: the rank's experts as they are stored, all read."""
        if request.name not in self.started or self.started[request.name][0] != request:
            self.forget(request.name)
            self.expect(request)
        _, tensors, pending = self.started.pop(request.name)
        for key, entry in request.entries.items():
            digests = self.finish(pending[key], entry)
            if self.verify and _xxh3.hexdigest(b"".join(digests)) != entry.xxh3_128:
                raise Refused(f"{entry.file}: {entry.name}: its bytes do not have the manifest's checksum; damaged")
            copy_repeated(tensors[key], request.experts)
        self.count(request)
        if not self.started:
            self.close()
        return tensors

    def forget(self, name):
        """What was begun of a layer goes on into its tensors: their memory is free only after that."""
        if name in self.started:
            for pending in self.started.pop(name)[2].values():
                pending.wait()

    def finish(self, pending, entry):
        try:
            return pending.wait()
        except (OSError, EOFError) as error:
            raise Refused(f"{entry.file}: {entry.name}: {error}") from error

    def stored(self, entry):
        """Where a packed tensor lies, in a file that agrees with the manifest."""
        path = path_of(self.directory, entry.file)
        if path not in self.headers:
            self.headers[path] = read_header(path)[0]
        if entry.name not in self.headers[path]:
            raise Refused(f"{path} has no {entry.name}")
        found = self.headers[path][entry.name]
        if found.shape != entry.shape:
            raise Refused(f"{path}: {entry.name}: shape is {found.shape}, manifest: {entry.shape}")
        if found.dtype != entry.torch_dtype:
            raise Refused(f"{path}: {entry.name}: dtype is torch.{found.dtype}, manifest: {entry.torch_dtype}")
        return found

    def count(self, request):
        self.progress.layers += 1
        self.progress.bytes += request.bytes
        self.progress.seconds = self.reader.last - self.progress.begin

    def drop(self):
        """Forgets the layers that were expected, and what was read of them."""
        if self.reader is not None:
            self.reader.dropped = True
            self.close()
        self.started.clear()

    def close(self):
        self.reader.close()
        self.reader = None


def copy_repeated(tensor, experts):
    """Of an expert that has several rows, the last one is read."""
    row_of = {expert: row for row, expert in enumerate(experts)}
    for row, expert in enumerate(experts):
        if row_of[expert] != row:
            tensor[row].copy_(tensor[row_of[expert]])


def jobs_of(path, begin, entry, wanted, verify):
    """The jobs for an entry that begins at byte `begin` of the file. `wanted`: the experts, and a tensor with one row for
    each. Experts that lie behind each other in file and tensor share a job, up to a piece. With `verify` every expert is
    read, in order, since a checksum is that of all."""
    experts, tensor = wanted
    size = entry.bytes // entry.experts
    target = tensor.view(-1).view(torch.uint8)
    row_of = {expert: row for row, expert in enumerate(experts)}
    jobs = []
    run = []
    for expert in range(entry.experts) if verify else row_of:
        if run and not (follows(row_of, run[-1], expert) and (len(run) + 1) * size <= PIECE):
            jobs.append(job_of(path, begin, target, (run, row_of, size, verify)))
            run = []
        run.append(expert)
    jobs.append(job_of(path, begin, target, (run, row_of, size, verify)))
    return jobs


def follows(row_of, last, expert):
    before, row = row_of.get(last), row_of.get(expert)
    return expert == last + 1 and (row is None if before is None else row == before + 1)


def job_of(path, begin, target, run):
    experts, row_of, size, verify = run
    row = row_of.get(experts[0])
    part = None if row is None else target[row * size:(row + len(experts)) * size]
    return Job(path, begin + experts[0] * size, begin + (experts[-1] + 1) * size, part, size if verify else 0)
