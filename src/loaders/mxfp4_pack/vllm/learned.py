"""Sets from layout files in vLLM's conversion functions."""

import torch
from mxfp4_pack.learn.probe import EXPERTS
from mxfp4_pack.learned import check_canary, fill_canary

from .conversion import KEYWORD, converted_canary, storage_of


def compare_canary(packed, original, device, given):
    """Does what conversion.compare_canary() does, for a set from a layout file."""
    made = converted_canary(packed, unpacked_canary(packed, device, given), original, given)
    check_canary(packed, {key: getattr(storage_of(thing), "data", thing) for key, thing in made.items()})
    return made


def unpacked_canary(packed, device, given):
    """{(role, part): tensor}, in buffers with the shapes of the engine's parameters for the layer."""
    unpacked = {}
    for key in next(iter(packed.layers.values())):
        shape = EXPERTS, *given[KEYWORD[key]].shape[1:]
        unpacked[key] = torch.zeros(shape, dtype=torch.bfloat16 if key[1] == "bias" else torch.uint8, device=device)
        fill_canary(packed, key, unpacked[key])
    return unpacked
