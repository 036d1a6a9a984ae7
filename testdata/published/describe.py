#!/usr/bin/env python3
"""Writes down which tensors a published model has: NAME.json from its config.json and the names in its index.

describe.py NAME SOURCE CONFIG INDEX   CONFIG: config.json; INDEX: model.safetensors.index.json, or a file of one name a line

Names are kept as patterns: "model.layers.{0-47}.mlp.experts.{0-127}.up_proj.weight". Of the config, keys without a number,
a list or a nested object of these are left out: no layer depends on a text.
"""

import json
import re
import sys
from pathlib import Path

TEXTS = {"model_type", "topk_method", "hybrid_override_pattern"}


def ranges(numbers):
    out = []
    for n in sorted(numbers):
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def merged(names, position):
    """Names as tuples of parts, of which those at an odd position are numbers: equal but for one number become one."""
    groups = {}
    for parts in names:
        key = parts[:position] + (None,) + parts[position + 1 :]
        groups.setdefault(key, set()).add(parts[position])
    return {k[:position] + (ranges(int(n) for n in v),) + k[position + 1 :] for k, v in groups.items()}


def patterns(names):
    by_length = {}
    for name in names:
        parts = tuple(re.split(r"(?<=\.)(\d+)(?=\.|$)", name))
        by_length.setdefault(len(parts), set()).add(parts)
    out = []
    for length, group in by_length.items():
        numbers = list(range(1, length, 2))
        for position in reversed(numbers):
            group = merged(group, position)
        out += ["".join(p if i % 2 == 0 else "{" + p + "}" for i, p in enumerate(parts)) for parts in group]
    return sorted(out)


def kept(config):
    if isinstance(config, dict):
        inner = {k: kept(v) for k, v in config.items() if k in TEXTS or not isinstance(v, str)}
        return {k: v for k, v in inner.items() if v not in ({}, [], None, float("inf")) and k not in DROPPED}
    if isinstance(config, list):
        return [kept(v) for v in config if v not in (float("inf"), float("-inf"))]
    return config


DROPPED = {"id2label", "label2id", "auto_map", "quantization_config", "task_specific_params", "rope_scaling", "transformers_weights"}


def describe(name, source, config, names):
    text = {"source": source, "config": kept(config), "tensors": patterns(names)}
    lines = ["{", f' "source": {json.dumps(source)},', f' "config": {json.dumps(text["config"], sort_keys=True)},', ' "tensors": [']
    lines += [f"  {json.dumps(p)}," for p in text["tensors"]]
    lines[-1] = lines[-1][:-1]
    lines += [" ]", "}"]
    (Path(__file__).parent / f"{name}.json").write_text("\n".join(lines) + "\n")


def main():
    name, source, config, index = sys.argv[1:]
    text = Path(index).read_text()
    names = json.loads(text)["weight_map"] if text.lstrip().startswith("{") else text.split()
    describe(name, source, json.loads(Path(config).read_text()), names)


if __name__ == "__main__":
    main()
