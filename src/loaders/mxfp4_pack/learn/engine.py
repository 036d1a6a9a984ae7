"""The layout that an installed engine's own conversion makes, at a model's size and on its tensor-parallel ranks."""

import importlib
from importlib import metadata

import torch

from . import NoRearrangement
from .layout import compare, learn
from .model import read_model
from .probe import Probe, Size

ENGINES = "vllm", "sglang"


def learn_engine(engine, path, moe_backend, tp_size):
    """(size, padded size, stored tensors, what made them) of the first rank. A middle one and the last are compared with what
    that predicts."""
    of = read_model(path)
    adapter = asked(engine, lambda: importlib.import_module(f".{engine}", __package__))

    def probe(rank):
        begin, end = of.share(tp_size, rank)
        size = Size(of.hidden, end - begin, of.is_gpt_oss)
        return Probe(called(asked(engine, lambda: adapter.Conversion(of, moe_backend, tp_size, rank))), size), size

    first, size = probe(0)
    padded, tensors = learn(first, of.is_gpt_oss)
    for rank in sorted({tp_size // 2, tp_size - 1} - {0}):
        other, share = probe(rank)
        if share.intermediate:
            compare_rank(other, rank, tensors)
    return size, padded, tensors, versions(adapter.LIBRARIES)


def asked(engine, what):
    """The result of a function of an engine that may be too old, too new or not there."""
    try:
        return what()
    except NoRearrangement:
        raise
    except Exception as e:
        raise NoRearrangement(f"the installed {engine} cannot be asked: {type(e).__name__}: {e}") from e


def compare_rank(probe, rank, tensors):
    for seed in (1, 2):
        layer = probe.random(seed)
        made = probe.run(layer)
        if "w2_bias" in layer:
            layer["w2_bias"][...] = 0  # it is added once
        try:
            compare(made, layer, tensors)
        except NoRearrangement as e:
            raise NoRearrangement(f"rank {rank} differs from rank 0: {e}") from e


def called(function):
    """The function, whose own failures are its refusals too."""
    def call(tensors):
        try:
            made = function(tensors)
        except NoRearrangement:
            raise
        except (Exception, SystemExit) as e:
            raise NoRearrangement(f"the conversion raised {type(e).__name__}: {e}") from e
        if not isinstance(made, dict):
            raise NoRearrangement(f"the conversion returned {type(made).__name__}, a dict of tensors was expected")
        return made
    return call


def versions(libraries):
    """Of what made a layout: libraries that are installed, torch, and the GPU."""
    found = {}
    for name in libraries:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found["torch"] = torch.__version__
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        found["GPU"] = f"{gpu.name}, {gpu.multi_processor_count} multiprocessors"
    return found
