"""What the makers of testdata/golden/families.json share: the checkpoint of a form of tests/cases/loaded.py, an empty model
in which an engine's own block is placed, and the SHA-256 of its parameters."""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cases"))
import loaded as forms  # noqa: E402
from case import Bench, Row  # noqa: E402


def bench_of(form, folder):
    """The checkpoint of a form, as "ckpt" in a folder that does not exist yet."""
    return Bench(os.environ["MXFP4_PACK"], forms.case_of(form), Row(), folder)


def inner(config):
    """The part of a config that describes the language model."""
    for key in ("thinker_config", "text_config", "llm_config"):
        if key in config:
            return inner(config[key])
    return config


def quantization_of(folder):
    """A checkpoint's quantization_config."""
    whole = json.loads((folder / "config.json").read_text())
    return whole.get("quantization_config") or inner(whole).get("quantization_config") or whole["compression_config"]


def grown(model, path, block):
    """The block under its name in the empty model."""
    at = model
    *parts, last = path.split(".")
    for part in parts:
        if part not in at._modules:
            at.add_module(part, nn.Module())
        at = at._modules[part]
    at.add_module(last, block)
    return block


def tensors_of_block(place, folder, names=r"(.*experts\.|.*put_linear)"):
    """The tensors that match in the layer of the block's place in the model, without those of shared experts, under the
    names that the model gets."""
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    number = re.search(r"layers\.(\d+)", place)[1]
    chosen = {n: t for n, t in tensors.items() if re.search(rf"layers\.{number}\.{names}", n) and "shared" not in n}
    return chosen if place.startswith("model.") else {n.removeprefix("model."): t for n, t in chosen.items()}


def filled(module):
    """With bytes that no scale of `synth` has, and no row of its codes."""
    for p in module.parameters():
        if not p.is_meta:
            p.data.view(torch.uint8).fill_(0xFF)


def checked(form, tensors):
    """Fails if a row is as `filled` left it."""
    for name, t in tensors.items():
        rows = t.contiguous().view(torch.uint8).flatten(0, -2)
        assert not (rows == 0xFF).all(dim=1).any(), f"{form}: {name} was not loaded as a whole"
    return tensors


def digests(tensors):
    """The SHA-256 of each tensor."""
    return {n: hashlib.sha256(t.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest() for n, t in sorted(tensors.items())}
