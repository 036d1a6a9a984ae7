"""The weights that an engine loads itself from a packed directory (rest-*): this package's reader reads them into the
GPU's memory.

Engines map the files, and copy tensors from there to the GPU one after the other. With DeepSeek-V4-Flash on four GPUs
this takes a third of vLLM's load_model. SGLang also computes on the tensors where they are.
"""

import os
from collections import deque
from functools import wraps

import torch

from ._entries import DTYPES
from ._reader import Reader, Run
from ._safetensors import read_header

THREADS = 6  # beside those that read experts
GROUP = 64 << 20  # bytes of one request
AHEAD = 512 << 20  # bytes that are read before the engine asks for them
HOST = torch.device("cpu")

waiting = {}  # {directory: device} of models that are built and not loaded yet


def expect(directory, device, module, name, is_default, order=list):
    """To be called while an engine builds a model on a GPU.

    - `module`.`name`(files, ..): the engine's iterator over (name, tensor).
    - is_default(..): whether its other arguments leave it to this package how files are read.
    - order(files): the files in the engine's order.
    """
    original = getattr(module, name, None)
    if original is not None:
        if not hasattr(original, "__wrapped__"):
            setattr(module, name, with_reader(original, is_default, order))
        waiting[os.path.realpath(directory)] = device


def with_reader(original, is_default, order):
    """The iterator, which uses the reader for a directory in `waiting`, once. A reload would need memory that a server
    has given to its KV cache."""
    @wraps(original)
    def iterate(files, *args, **given):
        device = waiting.pop(os.path.realpath(os.path.dirname(files[0])), None) if files else None
        if device is not None and is_default(*args, **given):
            stored = stored_in(order(files))
            reader = Reader(device, THREADS) if all(t.dtype in DTYPES.values() for _, _, t in stored) else None
            if reader is not None and reader.reaches:
                return tensors_of(stored, reader)
        return original(files, *args, **given)
    return iterate


def stored_in(files):
    """[(name, path, Stored)] in the order of files, and in each file's order."""
    return [(name, path, t) for path in files
            for name, t in sorted(read_header(path)[0].items(), key=lambda one: one[1].begin)]


def tensors_of(stored, reader):
    """Yields (name, tensor). Later tensors are read in the meantime."""
    groups, begun, ahead = deque(groups_of(stored)), deque(), 0
    try:
        while groups or begun:
            while groups and ahead < AHEAD:
                begun.append(begin(groups.popleft(), reader))
                ahead += begun[-1][3]
            own, number, tensors, bytes_ = begun.popleft()
            own.finish(number)
            ahead -= bytes_
            while tensors:  # a tensor's memory is free for others when the engine has taken it
                yield tensors.popleft()
    finally:
        reader.close()


def groups_of(stored):
    """Lists of consecutive tensors with at least GROUP bytes, except the last."""
    group, bytes_ = [], 0
    for one in stored:
        group.append(one)
        bytes_ += one[2].end - one[2].begin
        if bytes_ >= GROUP:
            yield group
            group, bytes_ = [], 0
    if group:
        yield group


def begin(group, reader):
    """(reader, number of its request, deque of (name, tensor), bytes). If the GPU has too little memory, the tensors are
    in the host's memory."""
    try:
        tensors = [empty(t, reader.device) for _, _, t in group]
    except torch.cuda.OutOfMemoryError:
        reader = Reader(HOST, THREADS)
        tensors = [empty(t, HOST) for _, _, t in group]
    runs = [Run(path, t.begin, t.end - t.begin, tensor.data_ptr())
            for (_, path, t), tensor in zip(group, tensors) if t.end > t.begin]
    named = deque((name, tensor) for (name, _, _), tensor in zip(group, tensors))
    return reader, reader.begin(runs, tensors), named, sum(run.bytes for run in runs)


def empty(t, device):
    return torch.empty(t.shape, dtype=getattr(torch, t.dtype), device=device)
