"""MXFP4_PACK_FALLBACK=unpack: if a set does not fit the engine, the engine gets the unpacked experts and converts them.

The C library unpacks one layer at a time, so that only it and the program have layouts.
"""

import json
import logging
import os
from typing import Any

import torch

from ._entries import Misfit, Refused
from ._library import unpacked_layer

VARIABLE = "MXFP4_PACK_FALLBACK"
OFFER = f"Or set {VARIABLE}=unpack: mxfp4-pack unpacks the experts at every start, and the engine converts them"
SUFFIX = {"codes": "", "scales": "_scale", "bias": "_bias"}


def module_of(entries):
    """The module's name of a layer's packed tensors."""
    return next(iter(entries.values())).name.rpartition(".")[0]


def allowed():
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "unpack"):
        raise Refused(f"{VARIABLE} is {value!r}, it can only be unpack")
    return value == "unpack"


def fall_back(set_: Any, misfit: Misfit, logger: logging.Logger) -> None:
    """Continues without the packed form after `misfit`, with one warning for each set. Raises `misfit` unless the
    fallback is allowed."""
    if not allowed():
        raise misfit
    if set_.fallback is None:
        set_.fallback = misfit
        set_.loading.drop()
        logger.warning("mxfp4-pack: the engine converts the experts itself, layer by layer, as from a checkpoint: %s",
                       misfit)


class UnpackedLayer:
    """A layer's experts before any conversion, without the engine's pads: `tensors` {(role, part): tensor}."""

    def __init__(self, set_, entries):
        data = unpacked_layer(set_.directory, set_.number, module_of(entries), set_.rank)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        self.pairs = header["__metadata__"]["w13_rows"] == "pairs"
        whole = torch.frombuffer(data, dtype=torch.uint8)
        self.tensors = {}
        for role in ("w13", "w2"):
            for part, suffix in SUFFIX.items():
                if t := header.get(role + suffix):
                    begin, end = (8 + length + at for at in t["data_offsets"])
                    dtype = torch.bfloat16 if part == "bias" else torch.uint8
                    self.tensors[role, part] = whole[begin:end].view(dtype).view(t["shape"])

    def fill(self, key, experts, parameter, up_first=False):
        """Writes the experts' rows to the places in the engine's unpacked `parameter` that its own weight loader
        uses."""
        put_rows(self.tensors[key], experts, parameter, 2 if key[0] == "w13" and not self.pairs else 1, up_first)


def put_rows(source, experts, parameter, halves, up_first=False):
    """Writes the experts' rows to the beginning of the parameter's rows; for w13 in halves, to the beginning of each
    half."""
    places = parameter.view(source.dtype).chunk(halves, dim=1)
    for rows, place in zip(source.chunk(halves, dim=1), places[::-1] if up_first else places):
        place = place[(slice(None), *(slice(n) for n in rows.shape[1:]))]
        for row, expert in enumerate(experts):
            place[row].copy_(rows[expert])
