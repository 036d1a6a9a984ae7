"""A manifest with random changes: it is read, or refused in printable text; nothing else is ever raised.

MXFP4_PACK_FUZZ is the number of mutations, MXFP4_PACK_SEED the seed.
"""

import copy
import os
import random
import unittest

import torch

import xxh3
from mxfp4_pack import Manifest, Refused
from mxfp4_pack.expert_update import sources_of
from mxfp4_pack.manifest import read_source_table
from packed_dir import write_manifest
from test_hostile_files import Output

FUZZ = int(os.environ.get("MXFP4_PACK_FUZZ", "300"))
VALUES = (None, True, False, 0, -1, 1, 1 << 62, 10 ** 200, 1.5, -0.0, "", "x", "\x1b[31m\u202e", "../x", [], [0], [[]], {}, {"a": 1},
          [None] * 3, {"": {}})


def places_in(value):
    """Every (container, key) of a JSON value."""
    found, left = [], [value]
    while left:
        value = left.pop()
        keys = value.keys() if isinstance(value, dict) else range(len(value))
        found += [(value, key) for key in keys]
        left += [value[key] for key in keys if isinstance(value[key], (dict, list))]
    return found


def mutate(value, g):
    container, key = g.choice(places_in(value))
    action = g.randrange(4)
    if action == 0:
        del container[key]
    elif action == 1:
        container[key] = copy.deepcopy(g.choice(VALUES))
    elif action == 2:
        other, at = g.choice(places_in(value))
        container[key] = copy.deepcopy(other[at])
    elif isinstance(container, list):
        container.append(copy.deepcopy(container[key]))
    else:
        container[g.choice(["a", "\x1b", "layout_file", "needs", "view", "rank"])] = copy.deepcopy(g.choice(VALUES))


def flipped(data, g):
    """The text's bytes with some of them others, or cut off."""
    data = bytearray(data)
    for _ in range(g.randrange(4)):
        data[g.randrange(len(data))] ^= 1 << g.randrange(8)
    return bytes(data[:g.randrange(len(data))] if g.random() < 0.3 else data)


def sealed(data):
    """With the checksum of its own."""
    begin = data.find(b'"xxh3_128": "') + 13
    zeroed = data[:begin] + b"0" * 32 + data[begin + 32:]
    return data[:begin] + xxh3.hexdigest(zeroed).encode() + data[begin + 32:]


class Mutations(Output):
    def use(self):
        """All uses of a manifest by loaders, except for reading weights."""
        manifest = Manifest(self.directory, "vllm")
        manifest.kernel("auto", 1)
        set_ = manifest.pick("auto", 1, 0)
        for layer in set_.layers.values():
            for entry in layer.values():
                set_.loading.stored(entry)
        sources_of(set_.fields, 0, read_source_table(self.directory, set_.fields["files"]))
        set_.canary(torch.device("cpu"))
        return [set_.padded_sizes, set_.sizes, set_.activation, set_.swiglu_limit, set_.allows_nan_scales, set_.is_triton,
                str(set_.mismatch("it does not fit")), set_.report()]

    def test_what_becomes_of_a_manifest(self):
        seed = int(os.environ.get("MXFP4_PACK_SEED", "1"))
        counts = {"good": 0, "refused": 0}
        for number in range(FUZZ):
            g = random.Random(seed * 1_000_000 + number)
            manifest = copy.deepcopy(self.good)
            for _ in range(g.choice([0, 1, 1, 1, 2, 5])):
                mutate(manifest, g)
            write_manifest(self.directory, manifest)
            if g.random() < 0.4:
                with open(self.path("mxfp4-pack.json"), "r+b") as file:
                    data = sealed(flipped(file.read(), g))
                    file.seek(0)
                    file.truncate()
                    file.write(data)
            with self.subTest(number=number, seed=seed):
                try:
                    self.use()
                    counts["good"] += 1
                except Refused as error:
                    counts["refused"] += 1
                    self.assertTrue(str(error).replace("\n", "").isprintable(), ascii(error))
        self.assertGreater(min(counts.values()), FUZZ // 20, counts)


if __name__ == "__main__":
    unittest.main()
