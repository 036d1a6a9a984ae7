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
        for rank in fields["ranks"]:
            packed = manifest.opened(fields, rank)
            key = next(key for key, entries in packed.layers.items() if module_of(entries) == layer)
            kernel = make(manifest, packed, key, own[0].ids.shape[1], device)
            if packed.fallback is not None:  # the engine would not use the packed bytes
                raise packed.fallback
            for batch, out in zip(own, sums):
                out += kernel(batch.x.to(device), batch.ids.to(device), batch.weights.to(device)).double().cpu()
            del kernel
        results += [Result(layer, len(batch.x), float((out - batch.out).norm() / batch.out.norm()))
                    for batch, out in zip(own, sums)]
    return results
