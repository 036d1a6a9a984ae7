"""Predicts stored bytes from an entry of a layout file, and compares a conversion with them."""

import numpy

from . import NoRearrangement
from .fit import places
from .probe import PARTS

PADS = "row", "column", "corner", "storage"  # their names in a layout file

def padded_rows(role, padded):
    return 2 * padded[1] if role == "w13" else padded[0]


def values_of(entry):
    """The stored value of each source byte: the byte itself, the byte plus a constant, or a scale's value."""
    if values := entry.get("values"):
        return numpy.array([value or 0 for value in values["of_scales"]], f"<u{values['width']}")
    return (numpy.arange(256) + entry["add"]).astype(numpy.uint8)


class Predicted:
    """Predicts a stored tensor's bytes from an entry of a layout file. padded: (hidden, intermediate). pairs: the rows
    of w13 are given as gate, up, gate, up .. free: bytes of an expert that the conversion does not write."""

    def __init__(self, entry, padded, pairs, free=False):
        self.key, self.role, self.part, self.pairs, self.free = entry["name"], entry["role"], entry["part"], pairs, free
        self.name = next(n for n, part in PARTS.items() if (n.split("_")[0], part) == (self.role, self.part))
        self.is_wide = entry["dtype"] == "F32"
        self.values = values_of(entry)
        pad, size = {"corner": entry["pad"]["row"]} | entry["pad"], self.values.itemsize
        self.pad = numpy.array([0, *(pad[at] + entry["add"] & (1 << 8 * size) - 1 for at in PADS)], self.values.dtype)
        self.rows, self.row_bytes = entry["storage"]["rows"], entry["storage"]["bytes"]
        self.columns, self.padded_columns = self.row_bytes // size, entry["row_bytes"] // size
        self.padded_rows = padded_rows(self.role, padded)
        order = entry.get("rows", {"block": 0, "first": "gate"})
        self.block, self.up_first, self.half = order["block"], order["first"] == "up", padded[1]
        rows, bits = places(entry["modes"]).T
        self.sources = rows * self.row_bytes * 8 + bits  # the source of every stored bit
        self.repeats = [self.repeat(r) for r in entry.get("repeats", ())]

    def repeat(self, entry):
        """(bits of the storage that repeat others, those others)"""
        (row, rows), (bit, bits), width = entry["rows"], entry["bits"], self.row_bytes * 8
        to = (numpy.arange(row, row + rows)[:, None] * width + numpy.arange(bit, bit + bits)).flatten()
        of = places(entry["modes"]) + entry["from"]
        return to, of[:, 0] * width + of[:, 1]

    def rows_of(self, count):
        """The storage's row of each source row."""
        if self.role == "w2":
            return numpy.arange(count)
        n, b, row = count // 2, self.block, numpy.arange(count)
        view, r = (row % 2, row // 2) if self.pairs else (row // n, row % n)
        view = view ^ self.up_first
        return view * self.half + r if b == 0 else r // b * 2 * b + view * b + r % b

    def bytes_of(self, source):
        """The stored bytes of one expert. source: [rows, ..] of the checkpoint's elements, or of fewer columns of w2
        and rows of w13."""
        if self.part == "bias":
            wide = source.astype(numpy.uint32) << 16 if self.is_wide else source
            source = wide[:, None].view(numpy.uint8)
        grid = self.pad[self.kinds(*source.shape)]
        grid[self.rows_of(len(source)), :source.shape[1]] = self.values[source]
        bits = numpy.unpackbits(grid.view(numpy.uint8), bitorder="little")
        for to, of in self.repeats:
            bits[to] = bits[of]
        return numpy.packbits(bits[self.sources], bitorder="little")

    def kinds(self, count, width):
        """The kind of each byte or value of the storage, for a source of `count` rows of `width`: 0 is source, 1 and
        more are PADS."""
        row, column, corner, storage = range(1, 5)
        kinds = numpy.full((self.rows, self.columns), storage, numpy.uint8)
        kinds[:self.padded_rows, :self.padded_columns] = corner
        kinds[:self.padded_rows, :width] = row
        kinds[self.rows_of(count), width:self.padded_columns] = column
        kinds[self.rows_of(count), :width] = 0
        return kinds

    def pads_of(self, data, count, width):
        """{kind of pad: its values} in an expert's stored bytes."""
        grid = numpy.zeros(self.rows * self.row_bytes * 8, numpy.uint8)
        grid[self.sources] = numpy.unpackbits(data, bitorder="little")
        grid = numpy.packbits(grid, bitorder="little").view(self.values.dtype).reshape(self.rows, self.columns)
        return {at: numpy.unique(grid[self.kinds(count, width) == kind]) for kind, at in enumerate(PADS, 1)}


def prove(probe, predicted):
    """Refuses a prediction unless every stored byte of random layers is as predicted."""
    alike = probe.random(0)
    alike["w13_scale"][...], alike["w2"][0] = 127, 0
    for layer in [probe.random(seed) for seed in range(1, 5)] + [probe.random(5, 3), alike]:
        compare(probe.run(layer), layer, predicted)


def compare(made, layer, predicted):
    """Raises `NoRearrangement` if a converted layer differs from the predicted bytes."""
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
