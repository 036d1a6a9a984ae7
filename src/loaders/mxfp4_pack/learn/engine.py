"""The conversion whose layout is learned: that of an installed engine, for a model's size and tensor-parallel ranks, or
a function."""

import importlib
import os
import re
from importlib import metadata

import torch

from . import NoRearrangement
from .layout import check_file, learn, scales_of
from .model import read_model
from .predicted import compare
from .probe import ALL_SCALES, Probe, Size

ENGINES = "vllm", "sglang"
# Settings of engines and kernel libraries that select a conversion. They contain no secrets and no directories.
SETTINGS = re.compile("(VLLM|SGLANG|FLASHINFER|HUMMING|TRITON|AITER|DG)_(?!.*(KEY|TOKEN|SECRET|PASSWORD|DIR|PATH|CACHE|BASE|HOST))")
LONGEST = 256  # characters that a layout file allows


class Function:
    def __init__(self, call, size, pairs, scales=ALL_SCALES):
        self.call, self.size, self.pairs, self.scales = called(call), size, pairs, scales

    def probe(self, rank):
        return Probe(self.call, self.size, self.scales)

    def ranks(self):
        return []

    def made_with(self):
        return versions(())


class Engine:
    """path: a checkpoint, or its config.json. scales: those that the conversion accepts."""

    def __init__(self, engine, path, moe_backend, tp_size, scales=ALL_SCALES):
        self.engine, self.moe_backend, self.tp_size, self.scales = engine, moe_backend, tp_size, scales
        self.of = read_model(path)
        self.pairs = self.of.is_gpt_oss
        self.adapter = asked(engine, lambda: importlib.import_module(f".{engine}", __package__))

    def probe(self, rank):
        begin, end = self.of.share(self.tp_size, rank)
        conversion = asked(self.engine, lambda: self.adapter.Conversion(self.of, self.moe_backend, self.tp_size, rank))
        return Probe(called(conversion), Size(self.of.hidden, end - begin, self.of.is_gpt_oss), self.scales)

    def ranks(self):
        """A middle rank and the last, if they have columns."""
        found = sorted({self.tp_size // 2, self.tp_size - 1} - {0})
        return [rank for rank in found if len(set(self.of.share(self.tp_size, rank))) == 2]

    def made_with(self):
        return versions(self.adapter.LIBRARIES) | {"moe-backend": self.moe_backend, "tp-size": str(self.tp_size)}


def learn_from(who):
    """Learns the layout of the first rank. The results of other ranks are compared with the predictions of this
    layout."""
    learned = learn(who.probe(0), who.pairs)
    see_pads(who, learned)
    compare_ranks(who, learned.predicted)
    return learned, who.made_with()


def check_against(path, who):
    """Refuses a layout file that disagrees with an installed engine or a function."""
    who.scales = scales_of(path)
    compare_ranks(who, check_file(path, who.probe(0), who.pairs))


def asked(engine, what):
    """Calls a function of an engine. Refuses an engine that is too old, too new or missing."""
    try:
        return what()
    except NoRearrangement:
        raise
    except Exception as e:
        raise NoRearrangement(f"the installed {engine} cannot be asked: {type(e).__name__}: {e}") from e


def see_pads(who, learned):
    """Adds pads that only ranks with fewer columns have."""
    if all(value is not None for t in learned.tensors for value in t.pad.values()):
        return
    for rank in who.ranks():
        probe = who.probe(rank)
        layer = probe.random(1)
        made = probe.run(layer)
        for t in learned.tensors:
            if t.key in made and made[t.key].data.shape[1] == len(t.map.value):
                t.see_pads(made[t.key].data[0], layer[t.name][0])
                t.predict(learned.padded, who.pairs)


def compare_ranks(who, predicted):
    for rank in who.ranks():
        probe = who.probe(rank)
        for seed in (1, 2):
            layer = probe.random(seed)
            made = probe.run(layer)
            if "w2_bias" in layer:
                layer["w2_bias"][...] = 0  # only one rank adds it
            try:
                compare(made, layer, predicted)
            except NoRearrangement as e:
                raise NoRearrangement(f"rank {rank} differs from rank 0: {e}") from e


def called(function):
    """Wraps the function, so that its exceptions become refusals."""
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
    """A description of the environment in which a layout was learned: installed libraries, torch, the GPU, and
    environment variables."""
    found = {}
    for name in libraries:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found["torch"] = torch.__version__
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        found["GPU"] = f"{gpu.name}, SM{gpu.major}{gpu.minor}, {gpu.multi_processor_count} multiprocessors"
    settings = sorted((name, value) for name, value in os.environ.items() if SETTINGS.match(name))
    return found | {name: value[:LONGEST] for name, value in settings[:32]}
