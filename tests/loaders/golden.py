"""testdata/golden/layer_*: one raw layer and what each engine holds of it."""

import os
from functools import lru_cache

from safetensors import safe_open

TESTDATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "testdata")
SUFFIX = {"codes": "", "scales": "_scale", "bias": "_bias"}


@lru_cache(maxsize=None)
def golden_tensors(family):
    with safe_open(os.path.join(TESTDATA, "golden", f"layer_{family}.safetensors"), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()} | {"": file.metadata()}


def golden_layer(family):
    """({(role, part): raw tensor}, whether w13's rows are gate, up pairs)"""
    tensors = golden_tensors(family)
    layer = {(role, part): tensors[f"in.{role}{suffix}"] for role in ("w13", "w2") for part, suffix in SUFFIX.items()
             if f"in.{role}{suffix}" in tensors}
    return layer, tensors[""]["w13_rows"] == "pairs"
