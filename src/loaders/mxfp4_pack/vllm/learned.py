"""Sets of a layout file (man mxfp4-pack-layout): the engine converts the file's canary in a layer of the true size."""

import hashlib

import torch
from mxfp4_pack.learn import NoRearrangement
from mxfp4_pack.learn.canary import canary_layer
from mxfp4_pack.learn.probe import EXPERTS, PARTS, Probe, Size, stored

from .conversion import KEYWORD, converted_canary


def compare_canary(packed, original, device, given):
    """As conversion.compare_canary, for a set of a layout file."""
    if "canary" not in packed.layout_file:
        raise packed.mismatch("its layout file has no canary to compare with")
    made = converted_canary(packed, raw_canary(packed, device, given), original, given)
    if wrong := [entry.parameter for key, entry in next(iter(packed.layers.values())).items()
                 if sum_of(entry.parameter, made.get(key)) != packed.layout_file["canary"].get(entry.parameter)]:
        raise packed.mismatch(f"it makes other bytes of the layout file's canary ({', '.join(wrong)})")
    return made


def raw_canary(packed, device, given):
    """{(role, part): tensor}, in buffers of the shapes that the engine made for the layer."""
    biased = any(part == "bias" for _, part in next(iter(packed.layers.values())))  # whose w13 has pairs
    size = Size(packed.layout_file["size"]["hidden"], packed.layout_file["size"]["intermediate"], biased)
    raw = {}
    for name, rows in canary_layer(Probe(None, size), biased).items():
        key = name.split("_")[0], PARTS[name]
        like = given[KEYWORD[key]]
        raw[key] = torch.zeros((EXPERTS, *like.shape[1:]), dtype=torch.bfloat16 if key[1] == "bias" else torch.uint8)
        rows = torch.from_numpy(rows.view("int16" if key[1] == "bias" else "uint8")).view(raw[key].dtype)
        halves = 2 if key[0] == "w13" and not biased else 1
        for half, place in zip(rows.chunk(halves, dim=1), raw[key].chunk(halves, dim=1)):
            place[tuple(slice(n) for n in half.shape)] = half
        raw[key] = raw[key].to(device)
    return raw


def sum_of(name, tensor):
    """Of the first expert's bytes; None where there are none."""
    try:
        return hashlib.sha256(stored(name, tensor, EXPERTS).data[0].tobytes()).hexdigest()
    except NoRearrangement:
        return None
