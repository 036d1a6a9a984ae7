"""Sets from layout files (mxfp4-pack-layout(5)): the engine converts the file's canary in a layer of the real size."""

import hashlib
from functools import lru_cache

import torch

from .fallback import put_rows
from .learn import NoRearrangement
from .learn.canary import canary_layer
from .learn.model import key_of
from .learn.probe import EXPERTS, Probe, Size, stored

NOT_ALONE = ("the canary of a layout file is compared when a layer of its size is loaded, "
             "or by python3 -m mxfp4_pack.learn --check FILE")


def fill_canary(packed, key, parameter, up_first=False):
    """Writes the canary's rows to the places in the engine's unpacked `parameter` of EXPERTS experts that its own
    weight loader uses."""
    biased = any(part == "bias" for _, part in next(iter(packed.layers.values())))  # with biases, w13 has pairs
    size = packed.layout_file["size"]
    rows = canary_of(size["hidden"], size["intermediate"], biased)[key]
    put_rows(rows, range(EXPERTS), parameter, 2 if key[0] == "w13" and not biased else 1, up_first)


@lru_cache(maxsize=1)
def canary_of(hidden, intermediate, biased):
    """{(role, part): tensor} of EXPERTS experts, without pads"""
    layer = canary_layer(Probe(None, Size(hidden, intermediate, biased)), biased)
    return {key_of(name): torch.from_numpy(rows.view("int16")).view(torch.bfloat16) if rows.dtype == "uint16"
            else torch.from_numpy(rows) for name, rows in layer.items()}


def check_canary(packed, made):
    """Refuses a set unless its layout file agrees with `made`, the engine's converted canary, {(role, part):
    tensor}."""
    if "canary" not in packed.layout_file:
        raise packed.mismatch("its layout file has no canary to compare with")
    wanted = packed.layout_file["canary"]
    if wrong := [entry.parameter for key, entry in next(iter(packed.layers.values())).items()
                 if sum_of(entry.parameter, made.get(key)) != wanted.get(entry.parameter)]:
        raise packed.mismatch(f"it makes other bytes of the layout file's canary ({', '.join(wrong)})")
    packed.canary_is_equal = True


def sum_of(name, tensor):
    """The SHA-256 of the first expert's bytes; None if there are none."""
    try:
        return hashlib.sha256(stored(name, tensor, EXPERTS).data[0].tobytes()).hexdigest()
    except NoRearrangement:
        return None
