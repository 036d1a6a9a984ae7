"""A conversion's layout as a layout file has it, learned and proved."""

import json
import sys

import numpy
import torch

from . import NoRearrangement
from .fit import Fitting, places
from .probe import PARTS

DTYPES = {torch.uint8: "U8", torch.int8: "I8", torch.int32: "I32", torch.int64: "I64", torch.int16: "I16",
          torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e8m0fnu: "F8_E8M0",
          torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


class Tensor:
    """A stored tensor, what it is made of, and its fit."""

    def __init__(self, key, name, stored, map, size, pairs, like):
        self.key, self.name, self.stored, self.map = key, name, stored, map
        self.role, self.part = name.split("_")[0], PARTS[name]
        if stored.dtype not in DTYPES:
            raise NoRearrangement(f"{key}: {stored.dtype}, which safetensors does not have")
        rows = 2 * size.intermediate if self.role == "w13" else size.hidden
        columns = size.hidden if self.role == "w13" else size.intermediate
        self.real = rows, {"codes": columns // 2, "scales": columns // 32, "bias": stored.dtype.itemsize}[self.part]
        self.fitting = Fitting(key, map, self.real, 2 if self.role == "w13" else 1, pairs, like)
        self.fit = self.fitting.best()

    def columns(self):
        """The columns that a row of the storage has room for."""
        return {"codes": 2, "scales": 32}[self.part] * self.fit.row_bytes if self.part != "bias" else 1 << 30

    def finish(self, padded):
        self.padded_rows = 2 * padded[1] if self.role == "w13" else padded[0]
        if self.role == "w13" and self.fit.block == 0 and self.fit.half != padded[1]:
            raise NoRearrangement(f"{self.key}: gate has {self.fit.half} rows, elsewhere {padded[1]}")
        self.pad, self.row_bytes = self.fitting.pads(self.fit, self.padded_rows)
        rows, bits = places(self.fit.modes).T
        self.sources = rows * self.fit.row_bytes * 8 + bits

    def to_json(self):
        fit, stored = self.fit, self.stored
        out = {"role": self.role, "part": self.part, "name": self.key, "dtype": DTYPES[stored.dtype],
               "torch_dtype": str(stored.dtype).split(".")[1], "shape": list(stored.shape)}
        if stored.view:
            shape, strides = map(list, stored.view)
            out["view"] = {"torch_dtype": out["torch_dtype"], "shape": shape, "strides": strides}
        if self.role == "w13":
            out["rows"] = {"block": fit.block, "first": "up" if fit.up_first else "gate"}
        pad = [value - self.map.add & 0xFF for value in self.pad]
        return out | {"row_bytes": self.row_bytes, "pad": dict(zip(("row", "column", "storage"), pad)),
                      "add": self.map.add, "storage": {"rows": fit.rows, "bytes": fit.row_bytes}, "modes": fit.modes}

    def predict(self, source):
        """The bytes of one expert, [rows, ..] of the checkpoint's elements, or of fewer columns of w2 and rows of w13."""
        fit = self.fit
        if self.part == "bias":
            wide = source.astype(numpy.uint32) << 16 if self.stored.dtype == torch.float32 else source
            source = wide[:, None].view(numpy.uint8)
        grid = numpy.full((fit.rows, fit.row_bytes), self.pad[2], numpy.uint8)
        grid[:self.padded_rows, :self.row_bytes] = self.pad[0]
        if self.role == "w13":
            n, b = len(source) // 2, fit.block
            row = numpy.arange(2 * n)
            view, r = (row % 2, row // 2) if self.fitting.pairs else (row // n, row % n)
            view = view ^ fit.up_first
            to = view * fit.half + r if b == 0 else r // b * 2 * b + view * b + r % b
        else:
            to = numpy.arange(len(source))
        grid[to, source.shape[1]:self.row_bytes] = self.pad[1]
        grid[to, :source.shape[1]] = source + numpy.uint8(self.map.add) if self.part == "scales" else source
        return numpy.packbits(numpy.unpackbits(grid, bitorder="little")[self.sources], bitorder="little")


def learn(probe, pairs):
    """The stored tensors of a conversion, with their fits."""
    size = probe.size
    before, made_of = probe.sources()
    maps = probe.maps(made_of, before)
    tensors, like = [], ((int(pairs), False), 0.5)  # the rows as they were given
    for name, key in sorted((n, k) for k, n in made_of.items()):  # w13's codes first
        print(f"{key}: made of {name}, {before[key].data.shape[1]} bytes of each expert", file=sys.stderr)
        tensors.append(Tensor(key, name, before[key], maps[key], size, pairs, like))
        if name == "w13":
            like = tensors[0].fit[:2], 1.5
    padded = padded_size(tensors, size)
    for tensor in tensors:
        tensor.finish(padded)
    prove(probe, tensors)
    return padded, tensors


def padded_size(tensors, size):
    """As large as every tensor has room for; where gate and up are halves, the half is what it is."""
    w13, w2 = ([t for t in tensors if t.role == role] for role in ("w13", "w2"))
    hidden = min([t.fit.rows for t in w2] + [t.columns() for t in w13])
    halves = {t.fit.half for t in w13 if t.fit.block == 0}
    intermediate = min(halves) if halves else min([t.fit.half for t in w13] + [t.columns() for t in w2])
    return max(hidden // 32 * 32, size.hidden), max(intermediate // 32 * 32, size.intermediate)


def prove(probe, tensors):
    """Every stored byte of random layers is the predicted one."""
    alike = probe.random(0)
    alike["w13_scale"][...], alike["w2"][0] = 127, 0
    for layer in [probe.random(seed) for seed in range(1, 5)] + [probe.random(5, 3), alike]:
        compare(probe.run(layer), layer, tensors)


def compare(made, layer, tensors):
    """Refuses what a conversion made of a layer where another byte was predicted."""
    for t in tensors:
        for expert, got in enumerate(made[t.key].data):
            want = t.predict(layer[t.name][expert])
            wrong = numpy.flatnonzero((got != want) & ~t.map.free)
            if len(wrong):
                at = wrong[0]
                raise NoRearrangement(
                    f"{t.key}: expert {expert}, byte {at} of a random layer: wanted {want[at]:#04x}, got {got[at]:#04x}, "
                    f"and {len(wrong) - 1} more; its bytes depend on more than their place")


def to_text(name, engine, size, padded, made_with, tensors):
    head = {"mxfp4_pack_layout": 1, "name": name, "engine": engine,
            "size": {"hidden": size.hidden, "intermediate": size.intermediate},
            "padded": {"hidden": padded[0], "intermediate": padded[1]}, "made_with": made_with}
    order = list(PARTS)
    lines = [json.dumps(t.to_json()) for t in sorted(tensors, key=lambda t: order.index(t.name))]
    return "{\n" + "".join(f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()) + \
        '"tensors": [\n' + ",\n".join(lines) + "\n]\n}\n"
