"""testdata/golden/layer_*: one unpacked layer, and its form in each engine. What stand-ins of engines share."""

import os
import sys
from functools import lru_cache
from types import ModuleType

import torch
from safetensors import safe_open

TESTDATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "testdata")
SUFFIX = {"codes": "", "scales": "_scale", "bias": "_bias"}


@lru_cache(maxsize=None)
def golden_tensors(family):
    with safe_open(os.path.join(TESTDATA, "golden", f"layer_{family}.safetensors"), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()} | {"": file.metadata()}


def golden_layer(family):
    """({(role, part): unpacked tensor}, whether w13's rows are gate, up pairs)"""
    tensors = golden_tensors(family)
    layer = {(role, part): tensors[f"in.{role}{suffix}"] for role in ("w13", "w2") for part, suffix in SUFFIX.items()
             if f"in.{role}{suffix}" in tensors}
    return layer, tensors[""]["w13_rows"] == "pairs"


def same(test, got, want, what):
    """Fails the test unless dtype, shape, strides and bytes are the same."""
    test.assertEqual(got.dtype, want.dtype, what)
    test.assertEqual(tuple(got.shape), tuple(want.shape), what)
    test.assertEqual(got.stride(), want.stride(), what)
    test.assertTrue(torch.equal(*(t.reshape(-1).view(torch.uint8) for t in (got, want))), what)


def install(modules):
    """Installs stand-ins as modules. modules: {name: {name of a member: member}}, parents first."""
    for name, members in modules.items():
        made = sys.modules[name] = ModuleType(name)
        vars(made).update(members)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, made)
