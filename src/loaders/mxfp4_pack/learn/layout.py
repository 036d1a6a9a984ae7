"""A conversion's layout as a layout file has it, learned and proved."""

import hashlib
import json
import sys
from typing import NamedTuple

import numpy
import torch

from . import NoRearrangement
from .fit import Fitting, places
from .probe import PARTS, Size

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
        self.padded_rows = padded_rows(self.role, padded)
        if self.role == "w13" and self.fit.block == 0 and self.fit.half != padded[1]:
            raise NoRearrangement(f"{self.key}: gate has {self.fit.half} rows, elsewhere {padded[1]}")
        self.pad, self.row_bytes = self.fitting.pads(self.fit, self.padded_rows)

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


def padded_rows(role, padded):
    return 2 * padded[1] if role == "w13" else padded[0]


class Predicted:
    """What an entry of a layout file says of a stored tensor's bytes. padded: (hidden, intermediate); pairs: rows of w13 are
    given as gate, up, gate, up ..; free: bytes of an expert that the conversion does not write."""

    def __init__(self, entry, padded, pairs, free=False):
        self.key, self.role, self.part, self.pairs, self.free = entry["name"], entry["role"], entry["part"], pairs, free
        self.name = next(n for n, part in PARTS.items() if (n.split("_")[0], part) == (self.role, self.part))
        self.add, self.is_wide = entry["add"], entry["dtype"] == "F32"
        self.pad = [entry["pad"][at] + self.add & 0xFF for at in ("row", "column", "storage")]
        self.rows, self.row_bytes = entry["storage"]["rows"], entry["storage"]["bytes"]
        self.padded_rows, self.padded_bytes = padded_rows(self.role, padded), entry["row_bytes"]
        order = entry.get("rows", {"block": 0, "first": "gate"})
        self.block, self.up_first, self.half = order["block"], order["first"] == "up", padded[1]
        rows, bits = places(entry["modes"]).T
        self.sources = rows * self.row_bytes * 8 + bits

    def rows_of(self, count):
        """The storage's rows of the source's."""
        if self.role == "w2":
            return numpy.arange(count)
        n, b, row = count // 2, self.block, numpy.arange(count)
        view, r = (row % 2, row // 2) if self.pairs else (row // n, row % n)
        view = view ^ self.up_first
        return view * self.half + r if b == 0 else r // b * 2 * b + view * b + r % b

    def bytes_of(self, source):
        """Of one expert, [rows, ..] of the checkpoint's elements, or of fewer columns of w2 and rows of w13."""
        if self.part == "bias":
            wide = source.astype(numpy.uint32) << 16 if self.is_wide else source
            source = wide[:, None].view(numpy.uint8)
        grid = numpy.full((self.rows, self.row_bytes), self.pad[2], numpy.uint8)
        grid[:self.padded_rows, :self.padded_bytes] = self.pad[0]
        to = self.rows_of(len(source))
        grid[to, source.shape[1]:self.padded_bytes] = self.pad[1]
        grid[to, :source.shape[1]] = source + numpy.uint8(self.add)
        return numpy.packbits(numpy.unpackbits(grid, bitorder="little")[self.sources], bitorder="little")


class Learned(NamedTuple):
    """padded: (hidden, intermediate); canary: what the conversion made of it (man mxfp4-pack-layout)."""
    size: Size
    padded: tuple
    tensors: list
    canary: dict

    @property
    def predicted(self):
        return [t.predicted for t in self.tensors]


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
        tensor.predicted = Predicted(tensor.to_json(), padded, pairs, tensor.map.free)
    check_scales(probe, tensors)
    learned = Learned(size, padded, tensors, {})
    prove(probe, learned.predicted)
    return learned._replace(canary=canary(probe, learned.predicted, pairs))


def padded_size(tensors, size):
    """As large as every tensor has room for; where gate and up are halves, the half is what it is."""
    w13, w2 = ([t for t in tensors if t.role == role] for role in ("w13", "w2"))
    hidden = min([t.fit.rows for t in w2] + [t.columns() for t in w13])
    halves = {t.fit.half for t in w13 if t.fit.block == 0}
    intermediate = min(halves) if halves else min([t.fit.half for t in w13] + [t.columns() for t in w2])
    return max(hidden // 32 * 32, size.hidden), max(intermediate // 32 * 32, size.intermediate)


def check_scales(probe, tensors):
    """Each of the 256 scales is stored as itself, plus a constant; of 0xFF, which is no number, it is only said."""
    for t in tensors:
        if t.part != "scales":
            continue
        known = t.map.source >= 0
        unit, table = t.map.source[known], numpy.full(256, -1)
        for first in range(0, 256, len(unit)):
            layer = probe.layer()
            scales = numpy.arange(first, first + layer[t.name][0].size) % 256
            layer[t.name][...] = scales.reshape(layer[t.name].shape[1:])
            table[scales[unit]] = probe.run(layer)[t.key].data[0][known]
        rewritten = numpy.flatnonzero(table != numpy.arange(256) + t.map.add & 0xFF)
        if len(rewritten) and rewritten[0] < 255:
            value = rewritten[0]
            raise NoRearrangement(f"{t.key}: scale {value:#04x} becomes {table[value]:#04x}, the others are {t.map.add} more: "
                                  "values are rewritten, a layout file only says where bytes go")
        if len(rewritten):
            print(f"{t.key}: scale 0xff becomes {table[255]:#04x}; a checkpoint with it is not packed so", file=sys.stderr)


def prove(probe, predicted):
    """Every stored byte of random layers is the predicted one."""
    alike = probe.random(0)
    alike["w13_scale"][...], alike["w2"][0] = 127, 0
    for layer in [probe.random(seed) for seed in range(1, 5)] + [probe.random(5, 3), alike]:
        compare(probe.run(layer), layer, predicted)


def compare(made, layer, predicted):
    """Refuses what a conversion made of a layer where another byte was predicted."""
    for t in predicted:
        if t.key not in made:
            raise NoRearrangement(f"{t.key}: the conversion makes {', '.join(made)}")
        for expert, got in enumerate(made[t.key].data):
            want = t.bytes_of(layer[t.name][expert])
            if len(got) != len(want):
                raise NoRearrangement(f"{t.key}: {len(got)} bytes of an expert, {len(want)} were expected")
            wrong = numpy.flatnonzero((got != want) & ~numpy.bool_(t.free))
            if len(wrong):
                at = wrong[0]
                raise NoRearrangement(
                    f"{t.key}: expert {expert}, byte {at} of a random layer: wanted {want[at]:#04x}, got {got[at]:#04x}, "
                    f"and {len(wrong) - 1} more; its bytes depend on more than their place")


def canary(probe, predicted, pairs):
    """{name: SHA-256 of what the conversion made of the canary's expert}, bytes that it does not write as predicted."""
    layer = canary_layer(probe, pairs)
    made = probe.run(layer)
    sums = {}
    for t in predicted:
        data = numpy.where(t.free, t.bytes_of(layer[t.name][0]), made[t.key].data[0])
        sums[t.key] = hashlib.sha256(data.tobytes()).hexdigest()
    return sums


def canary_layer(probe, pairs):
    """The layer of man mxfp4-pack-layout, the same for all experts."""
    layer = probe.layer()
    for number, name in enumerate(PARTS):
        if name not in layer:
            continue
        shape, dtype = layer[name].shape[1:], layer[name].dtype
        data = stream(number, shape[0] * int(numpy.prod(shape[1:])) * dtype.itemsize).view(dtype)
        if PARTS[name] != "codes":
            data = 64 + data % 128 if PARTS[name] == "scales" else data & 0xBFFF
        rows = data.reshape(shape)
        if name.startswith("w13") and pairs:
            rows = numpy.stack(numpy.split(rows, 2), 1).reshape(shape)
        layer[name][...] = rows.astype(dtype)
    return layer


def stream(number, size):
    """SplitMix64's numbers from number << 40 on, as bytes."""
    x = numpy.arange(1, size // 8 + 2, dtype=numpy.uint64) + numpy.uint64(number << 40)
    x *= numpy.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> numpy.uint64(shift)) * numpy.uint64(factor)
    return (x ^ x >> numpy.uint64(31)).astype("<u8").view(numpy.uint8)[:size]


def to_text(name, engine, learned, made_with):
    size, padded = learned.size, learned.padded
    head = {"mxfp4_pack_layout": 1, "name": name, "engine": engine,
            "size": {"hidden": size.hidden, "intermediate": size.intermediate},
            "padded": {"hidden": padded[0], "intermediate": padded[1]}, "made_with": made_with, "canary": learned.canary}
    order = list(PARTS)
    lines = [json.dumps(t.to_json()) for t in sorted(learned.tensors, key=lambda t: order.index(t.name))]
    return "{\n" + "".join(f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()) + \
        '"tensors": [\n' + ",\n".join(lines) + "\n]\n}\n"


def read_file(path):
    """(size, padded, entries) of a layout file, which mxfp4-pack has not refused."""
    try:
        with open(path) as file:
            made = json.load(file)
        sizes = [(made[name]["hidden"], made[name]["intermediate"]) for name in ("size", "padded")]
        bias = any(t["part"] == "bias" for t in made["tensors"])
        return Size(*sizes[0], bias), sizes[1], made["tensors"]
    except OSError as e:
        raise NoRearrangement(f"{path}: {e.strerror}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise NoRearrangement(f"{path}: no layout file ({type(e).__name__}: {e})") from e


def check_file(path, probe, pairs):
    """What a layout file predicts, where the conversion makes it of the canary."""
    size, padded, entries = read_file(path)
    if size != probe.size:
        raise NoRearrangement(f"{path}: for {size}, asked is {probe.size}")
    layer = canary_layer(probe, pairs)
    made, again = probe.run(layer, 0xA5), probe.run(layer, 0x5A)
    predicted = [Predicted(entry, padded, pairs) for entry in entries]
    for t in predicted:
        if t.key in made:
            t.free = made[t.key].data[0] != again[t.key].data[0]
    compare(made, layer, predicted)
    return predicted
