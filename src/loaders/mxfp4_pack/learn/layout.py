"""Learns a conversion's layout in the form of a layout file, and proves it."""

import json
import sys
from typing import NamedTuple

import numpy
import torch

from . import NoRearrangement
from .._errors import Refused
from .._files import CONFIG_LIMIT, read_json
from .canary import SCALES as CANARY_SCALES, canary, canary_layer
from .fit import Fitting
from .predicted import Predicted, compare, prove
from .probe import ALL_SCALES, PARTS, Size

DTYPES = {torch.uint8: "U8", torch.int8: "I8", torch.int32: "I32", torch.int64: "I64", torch.int16: "I16",
          torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e8m0fnu: "F8_E8M0",
          torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
for later, stored_as in (("float4_e2m1fn_x2", "U8"), ("uint16", "U16"), ("uint32", "U32"), ("uint64", "U64")):
    if hasattr(torch, later):  # the first is the dtype of AITER's codes
        DTYPES[getattr(torch, later)] = stored_as


class Tensor:
    """A stored tensor, its source and its fit."""

    def __init__(self, key, name, stored, map, size, pairs, like):
        self.key, self.name, self.stored, self.map = key, name, stored, map
        self.role, self.part = name.split("_")[0], PARTS[name]
        if stored.dtype not in DTYPES:
            raise NoRearrangement(f"{key}: {stored.dtype}, which safetensors does not have")
        rows = 2 * size.intermediate if self.role == "w13" else size.hidden
        columns = size.hidden if self.role == "w13" else size.intermediate
        self.real = rows, {"codes": columns // 2, "scales": columns // 32 * map.element.itemsize,
                           "bias": stored.dtype.itemsize}[self.part]
        self.views = 2 if self.role == "w13" else 1
        self.fitting = Fitting(key, map, self.real, self.views, pairs, like)
        self.fit = self.fitting.best()

    def columns(self):
        """The number of columns that fit into a row of the storage."""
        per = {"codes": 2, "scales": 32}.get(self.part)
        return per * (self.fit.row_bytes // self.map.element.itemsize) if per else 1 << 30

    def finish(self, padded):
        """Finds the pads. Returns the least padded sizes that tell pads of rows from others, `padded` or larger."""
        at = self.views - 1
        if self.role == "w13" and self.fit.block == 0 and self.fit.half != padded[1]:
            raise NoRearrangement(f"{self.key}: gate has {self.fit.half} rows, elsewhere {padded[1]}")
        for size in range(padded[at], self.fit.half + 1, 32):
            if found := self.fitting.pads(self.fit, size * self.views):
                self.pad, self.row_bytes = found
                self.repeats = self.fitting.repeats(self.fit)
                return (*padded[:at], size, *padded[at + 1:])
        raise NoRearrangement(f"{self.key}: pads of several values, which rows, columns and storage do not tell apart")

    def make_room(self, padded):
        """Fits the tensor again if its storage lacks rows or columns."""
        rows, columns = padded if self.role == "w2" else padded[::-1]
        if self.fit.rows < rows * self.views or self.columns() < columns:
            self.fitting.least = rows * self.views, self.fit.row_bytes * columns // self.columns()
            self.fit = self.fitting.best()

    def to_json(self):
        fit, stored = self.fit, self.stored
        out = {"role": self.role, "part": self.part, "name": self.key, "dtype": DTYPES[stored.dtype],
               "torch_dtype": str(stored.dtype).split(".")[1], "shape": list(stored.shape)}
        if stored.view:
            shape, strides = map(list, stored.view)
            out["view"] = {"torch_dtype": out["torch_dtype"], "shape": shape, "strides": strides}
        if self.role == "w13":
            out["rows"] = {"block": fit.block, "first": "up" if fit.up_first else "gate"}
        highest = numpy.iinfo(self.map.element).max
        pad = {at: (value or 0) - self.map.add & highest for at, value in self.pad.items()}
        if self.pad["corner"] in (None, self.pad["row"]):
            del pad["corner"]
        out |= {"row_bytes": self.row_bytes, "pad": pad, "add": self.map.add}
        if self.map.values:
            out["values"] = {"width": self.map.element.itemsize, "of_scales": self.map.values}
        out |= {"storage": {"rows": fit.rows, "bytes": fit.row_bytes}, "modes": fit.modes}
        return out | ({"repeats": self.repeats} if self.repeats else {})

    def predict(self, padded, pairs):
        self.predicted = Predicted(self.to_json(), padded, pairs, self.map.free)

    def see_pads(self, data, source):
        """Fills in the values of pads that the first rank does not have, from the bytes of another rank."""
        seen = self.predicted.pads_of(data, len(source), source[0].size if self.part != "bias" else self.real[1])
        self.pad |= {at: int(seen[at][0]) for at, value in self.pad.items() if value is None and len(seen[at])}


class Learned(NamedTuple):
    """padded: (hidden, intermediate). canary: the checksums of the converted canary (mxfp4-pack-layout(5))."""
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
    maps, ranges = {}, [probe.scales]
    for key, map in probe.maps(made_of, before).items():
        maps[key], scales = with_scales(probe, key, made_of[key], map)
        ranges.append(scales)
    probe.scales = range(max(r.start for r in ranges), min(r.stop for r in ranges))  # the others are lossy somewhere
    tensors, like = [], ((int(pairs), False), 0.5)  # the rows in the given order
    for name, key in sorted((n, k) for k, n in made_of.items()):  # w13's codes first
        print(f"{key}: made of {name}, {before[key].data.shape[1]} bytes of each expert", file=sys.stderr)
        tensors.append(Tensor(key, name, before[key], maps[key], size, pairs, like))
        if name == "w13":
            like = tensors[0].fit[:2 if tensors[0].fit.block else 3], 1.5
    agree(tensors)
    padded = finish(tensors, padded_size(tensors, size))
    for tensor in tensors:
        tensor.predict(padded, pairs)
    learned = Learned(size, padded, tensors, {})
    prove(probe, learned.predicted)
    return learned._replace(canary=canary(probe, learned.predicted, pairs))


def agree(tensors):
    """Fits tensors again whose halves of gate and up have more rows than other tensors, or others than w13's codes."""
    most = min(t.fit.rows // 2 if t.role == "w13" else t.columns() for t in tensors)
    for allowed in (lambda halves: range(most + 1), lambda halves: halves[:1]):
        of_halves = [t for t in tensors if t.role == "w13" and t.fit.block == 0]
        allowed = allowed([t.fit.half for t in of_halves])
        for t in of_halves:
            if t.fit.half not in allowed:
                t.fitting.halves = allowed
                t.fit = t.fitting.best()


def finish(tensors, padded):
    """Finds the pads of all tensors. Returns the padded sizes, larger than `padded` if some tensor's pads say so."""
    sizes = [tensor.finish(padded) for tensor in tensors]
    larger = max(h for h, _ in sizes), max(i for _, i in sizes)
    if larger == padded:
        return padded
    for tensor in tensors:
        tensor.make_room(larger)
    return finish(tensors, larger)


def padded_size(tensors, size):
    """The largest sizes that fit every tensor. If gate and up are halves, the size of a half gives intermediate."""
    w13, w2 = ([t for t in tensors if t.role == role] for role in ("w13", "w2"))
    hidden = min([t.fit.rows for t in w2] + [t.columns() for t in w13])
    halves = {t.fit.half for t in w13 if t.fit.block == 0}
    intermediate = min(halves) if halves else min([t.fit.half for t in w13] + [t.columns() for t in w2])
    return max(hidden // 32 * 32, size.hidden), max(intermediate // 32 * 32, size.intermediate)


def with_scales(probe, key, name, map):
    """The map, for scales with the stored value of each tried scale; and the range of scales that are not lost. 0xFF
    (NaN) may have no value."""
    if map.part != "scales":
        return map, probe.scales
    table = scale_table(probe, key, name, map)
    digits = 2 + map.unit // 4
    if probe.scales == ALL_SCALES and map.unit == 8 and (table == numpy.arange(256) + map.add & 0xFF)[:255].all():
        if table[255] != 255 + map.add & 0xFF:
            print(f"{key}: scale 0xff becomes {table[255]:#04x}; a checkpoint with it is not packed so", file=sys.stderr)
        return map, probe.scales
    tried = [scale for scale in probe.scales if scale < 255]
    kept = not_lost(key, table, tried, digits)
    values = [int(table[scale]) if scale in kept or scale == 255 == probe.scales[-1] else None for scale in ALL_SCALES]
    if values[255] is not None and table[255] in table[tried]:
        print(f"{key}: scale 0xff becomes {table[255]:#0{digits}x}, as another does; a checkpoint with it is refused",
              file=sys.stderr)
        values[255] = None
    return map._replace(add=0, values=values), kept if len(kept) < len(tried) else probe.scales


def not_lost(key, table, tried, digits):
    """The range of scales that become values of their own, as most do if a conversion saturates. It must include the
    canary's."""
    first, last = tried[0], tried[-1]
    order = sorted(tried, key=table.__getitem__)
    for a, b in zip(order, order[1:]):
        if table[a] != table[b]:
            continue
        if a in CANARY_SCALES or b in CANARY_SCALES:
            raise NoRearrangement(f"{key}: scales {a:#04x} and {b:#04x} both become {table[a]:#0{digits}x}: that is lossy; "
                                  f"{CANARY_SCALES[0]:#04x} to {CANARY_SCALES[-1]:#04x} must become values of their own")
        for lost in (a, b):
            first, last = (max(first, lost + 1), last) if lost < CANARY_SCALES[0] else (first, min(last, lost - 1))
    if (first, last) != (tried[0], tried[-1]):
        print(f"{key}: scales below {first:#04x} or above {last:#04x} become what others do; a checkpoint with them is "
              "refused", file=sys.stderr)
    return range(first, last + 1)


def scale_table(probe, key, name, map):
    """The stored value of each tried scale."""
    known = map.source >= 0
    unit, table = map.source[known], numpy.full(256, -1)
    size, tried = probe.layer()[name][0].size, numpy.array(probe.scales)
    for first in range(0, len(tried), size):
        layer = probe.layer()
        scales = tried[numpy.arange(first, first + size) % len(tried)]
        layer[name][...] = scales.reshape(layer[name].shape[1:])
        table[scales[unit]] = probe.run(layer)[key].data[0].view(map.element)[known]
    return table


def to_text(name, engine, learned, made_with):
    size, padded = learned.size, learned.padded
    entries = [t.to_json() for t in sorted(learned.tensors, key=lambda t: list(PARTS).index(t.name))]
    head = {"mxfp4_pack_layout": 1, "name": name, "engine": engine,
            "size": {"hidden": size.hidden, "intermediate": size.intermediate},
            "padded": {"hidden": padded[0], "intermediate": padded[1]}, "made_with": made_with, "canary": learned.canary}
    return "{\n" + "".join(f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()) + \
        '"tensors": [\n' + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n}\n"


def read_file(path):
    """(size, padded, entries) of a layout file that mxfp4-pack has accepted."""
    try:
        made = read_json(path, CONFIG_LIMIT)
        sizes = [(made[name]["hidden"], made[name]["intermediate"]) for name in ("size", "padded")]
        bias = any(t["part"] == "bias" for t in made["tensors"])
        return Size(*sizes[0], bias), sizes[1], made["tensors"]
    except OSError as e:
        raise NoRearrangement(f"{path}: {e.strerror}") from e
    except Refused as e:
        raise NoRearrangement(e) from None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise NoRearrangement(f"{path}: no layout file ({type(e).__name__}: {e})") from e


def scales_of(path):
    """The range of scales for which a layout file has values."""
    scales = ALL_SCALES
    for entry in read_file(path)[2]:
        known = [s for s, value in enumerate(entry.get("values", {}).get("of_scales", ALL_SCALES)) if value is not None]
        scales = range(max(scales.start, known[0]), min(scales.stop, known[-1] + 1))
    return scales


def check_file(path, probe, pairs):
    """The predictions of a layout file. Raises `NoRearrangement` if the converted canary disagrees with them."""
    size, padded, entries = read_file(path)
    if size != probe.size:
        raise NoRearrangement(f"{path}: the file is for {size}, the conversion for {probe.size}")
    layer = canary_layer(probe, pairs)
    made, again = probe.run(layer, 0xA5), probe.run(layer, 0x5A)
    predicted = [Predicted(entry, padded, pairs) for entry in entries]
    for t in predicted:
        if t.key in made:
            t.free = made[t.key].data[0] != again[t.key].data[0]
    compare(made, layer, predicted)
    return predicted
