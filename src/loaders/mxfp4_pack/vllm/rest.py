"""The weights that vLLM itself loads from a packed directory: this package's reader reads them into the GPU's memory.

vLLM maps the files, and copies tensors from there to the GPU one after the other. With DeepSeek-V4-Flash on four GPUs
this takes a third of load_model. Facts about vLLM are from v0.26.0 and v0.33.0.
"""

import os
from collections import deque
from functools import wraps

import torch
from mxfp4_pack._entries import DTYPES
from mxfp4_pack._reader import Reader, Run
from mxfp4_pack._safetensors import read_header
from vllm.model_executor.model_loader import default_loader, weight_utils

ITERATOR = "safetensors_weights_iterator"
LAZY = (None, "lazy")  # strategies that read a tensor when a model asks for it
THREADS = 6  # beside those that read experts
GROUP = 64 << 20  # bytes of one request
AHEAD = 512 << 20  # bytes that are read before vLLM asks for them
HOST = torch.device("cpu")

waiting = {}  # {directory: device} of models that are built and not loaded yet


def expect(directory, device, vllm):
    """To be called while vLLM builds a model. vllm: its config. A rank of a pipeline needs few of the tensors, and vLLM
    does not read the others."""
    if device.type == "cuda" and vllm.parallel_config.pipeline_parallel_size == 1 and hasattr(default_loader, ITERATOR):
        original = getattr(default_loader, ITERATOR)
        if not hasattr(original, "__wrapped__"):
            setattr(default_loader, ITERATOR, with_reader(original))
        waiting[os.path.realpath(directory)] = device


def with_reader(original):
    """vLLM's iterator over (name, tensor) of files, which uses the reader for a directory in `waiting`, once. A reload
    would need memory that a server has given to its KV cache."""
    @wraps(original)
    def iterate(files, use_tqdm=False, strategy=None, *args, **given):
        device = waiting.pop(os.path.realpath(os.path.dirname(files[0])), None) if files else None
        if device is not None and given.get("safetensors_load_strategy", strategy) in LAZY:
            stored = stored_in(files)
            reader = Reader(device, THREADS) if all(t.dtype in DTYPES.values() for _, _, t in stored) else None
            if reader is not None and reader.reaches:
                return tensors_of(stored, reader)
        if strategy is not None or args:
            return original(files, use_tqdm, strategy, *args, **given)
        return original(files, use_tqdm, **given)
    return iterate


def stored_in(files):
    """[(name, path, Stored)] in vLLM's order of files, and in each file's order."""
    order = getattr(weight_utils, "_natural_sort_key", None)
    return [(name, path, t) for path in sorted(files, key=order)
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
            while tensors:  # a tensor's memory is free for others when vLLM has taken it
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
