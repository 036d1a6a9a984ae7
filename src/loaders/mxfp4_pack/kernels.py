"""Runs whole MoE layers on packed bytes with the engine's own kernel, and compares the results with those of
`mxfp4-pack verify --save`, computed from the checkpoint in double precision."""

import importlib
import json
from typing import NamedTuple

import torch

from ._files import read_file
from ._safetensors import read_header
from .fallback import module_of


class Batch(NamedTuple):
    """See --save in mxfp4-pack(1)."""
    layer: str
    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    out: torch.Tensor


class Result(NamedTuple):
    """A batch as the engine computes it."""
    layer: str
    tokens: int
    relative_l2: float
    beside_engine: float | None = None  # relative L2 between this package's kernel and the one that it replaces


def read_batches(path):
    """The batches in a file of `mxfp4-pack verify --save`."""
    tensors, start = read_header(path)
    data = torch.frombuffer(bytearray(read_file(path)), dtype=torch.uint8)
    metadata = json.loads(data[8:start].numpy().tobytes())["__metadata__"]

    def tensor(name):
        t = tensors[name]
        return data[t.begin:t.end].clone().view(getattr(torch, t.dtype)).view(t.shape)

    return [Batch(metadata[f"{n}.layer"], *(tensor(f"{n}.{part}") for part in ("x", "ids", "weights", "out")))
            for n in range(sum(name.endswith(".layer") for name in metadata))]


def compute(manifest, fields, batches, device):
    """The engine's results for the batches, summed over ranks."""
    make = importlib.import_module(f"mxfp4_pack.{fields['engine']}.kernel").Kernel
    results = []
    for layer in dict.fromkeys(batch.layer for batch in batches):
        own = [batch for batch in batches if batch.layer == layer]
        sums = [torch.zeros_like(batch.out) for batch in own]
        engines, replaced = [torch.zeros_like(batch.out) for batch in own], False
        for rank in range(fields["moe_tp_size"]):
            packed = manifest.opened(fields, rank)
            key = next(key for key, entries in packed.layers.items() if module_of(entries) == layer)
            kernel = make(manifest, packed, key, own[0].ids.shape[1], device)
            if packed.fallback is not None:  # the engine would not use the packed bytes
                raise packed.fallback
            for batch, out, engine in zip(own, sums, engines):
                given = [t.to(device) for t in (batch.x, batch.ids, batch.weights)]
                out += kernel(*given).double().cpu()
                if (theirs := kernel.engine(*given)) is not None:
                    replaced = True
                    engine += theirs.double().cpu()
            del kernel
        results += [Result(layer, len(batch.x), distance(out, batch.out), distance(out, engine) if replaced else None)
                    for batch, out, engine in zip(own, sums, engines)]
    return results


def distance(out, reference):
    """Relative L2."""
    return float((out - reference).norm() / reference.norm())
