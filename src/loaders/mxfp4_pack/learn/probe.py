"""Finds the source of every stored bit by running a conversion on bytes that encode their own place.

A conversion is a function from a layer, a dict of named tensors, to a dict of tensors with the experts outermost:

    w13        U8 [experts, 2 * intermediate, hidden / 2]    codes, the even column in the low nibble
    w13_scale  U8 [experts, 2 * intermediate, hidden / 32]   E8M0
    w13_bias   BF16 [experts, 2 * intermediate]              if there are biases
    w2, w2_scale, w2_bias                                    [experts, hidden, intermediate ..]

Each pass encodes one binary digit of the number of every unit (a bit of the codes, a scale, a bias) as one of two
values. A second pass exchanges the values, so that copies, inversions, constants and XORs differ. Two further runs, in
which torch.empty returns memory of 0xA5 and of 0x5A, show the bytes that are not written.
"""

from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from unittest import mock

import numpy
import torch

from . import NoRearrangement

PARTS = {"w13": "codes", "w13_scale": "scales", "w13_bias": "bias",
         "w2": "codes", "w2_scale": "scales", "w2_bias": "bias"}
EXPERTS = 2
SCALES = 120, 135   # every kernel accepts these
TELLING = *SCALES, 0, 1, 121, 254   # each byte of a float has the same value for at least two of these
ALL_SCALES = range(256)
BIASES = 0x3F80, 0xC080   # 1.0 and -4.0
MAKERS = {torch: ("empty", "empty_like", "empty_strided"), torch.Tensor: ("new_empty", "new_empty_strided")}


class Size(NamedTuple):
    hidden: int
    intermediate: int
    bias: bool

    def shapes(self, experts):
        n13, n2 = 2 * self.intermediate, self.hidden
        shapes = {"w13": (experts, n13, self.hidden // 2), "w13_scale": (experts, n13, self.hidden // 32),
                  "w2": (experts, n2, self.intermediate // 2), "w2_scale": (experts, n2, self.intermediate // 32)}
        if self.bias:
            shapes |= {"w13_bias": (experts, n13), "w2_bias": (experts, n2)}
        return shapes


class Stored(NamedTuple):
    """A tensor that the conversion returned: its bytes, [experts, bytes], and its view of them."""
    data: numpy.ndarray
    dtype: torch.dtype
    shape: tuple    # of one expert, in memory order
    view: tuple | None   # (shape, strides) of one expert, if the tensor is not contiguous
    why: str = ""   # why a layout file cannot describe it


class Map(NamedTuple):
    """The sources of one expert's stored tensor. unit: bits of a unit. source: the source unit of each stored unit, or
    -1. value: the bytes of units without a source. free: bytes that the conversion does not write. copies: the number
    of copies of each source unit. often: stored units whose source has further copies, in pads. add: the constant added to scales. values: the stored value of each of the 256 scales
    (None: no value), if that is no constant more."""
    part: str
    unit: int
    source: numpy.ndarray
    value: numpy.ndarray
    free: numpy.ndarray
    copies: int
    often: numpy.ndarray
    add: int = 0
    values: list | None = None

    @property
    def element(self):
        """The dtype of a stored scale. Codes and biases are bytes."""
        return numpy.dtype(f"<u{self.unit // 8 if self.part == 'scales' else 1}")


def stored(name, tensor, experts):
    """The bytes of any tensor. `why` is the reason if a layout file cannot describe the tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise NoRearrangement(f"{name}: no tensor of {experts} experts")
    tensor = tensor.detach()
    if tensor.dim() and tensor.shape[0] != experts and tensor.is_contiguous() and tensor.numel() % experts == 0:
        tensor = tensor.reshape(experts, -1)  # the map must confirm that the experts are consecutive
    why, order = "", sorted(range(1, tensor.dim()), key=lambda d: (-tensor.stride(d), d))
    if tensor.dim() == 0 or tensor.shape[0] != experts:
        why = f"{name}: no tensor of {experts} experts"
    elif not tensor.permute(0, *order).is_contiguous():
        why = (f"{name}: shape {list(tensor.shape)} with strides {list(tensor.stride())} leaves memory out, or takes it "
               "twice")
    in_memory = tensor.reshape(1, -1) if why else tensor.permute(0, *order)
    data = in_memory.contiguous().view(torch.uint8).reshape(1 if why else experts, -1).cpu().numpy()
    view = None if why or order == sorted(order) else (tuple(tensor.shape[1:]), tensor.stride()[1:])
    return Stored(data.copy(), tensor.dtype, tuple(in_memory.shape[1:]), view, why)


@contextmanager
def unwritten(byte):
    """In this context torch.empty and similar functions return memory filled with `byte`."""
    def filled(make):
        def made(*args, **given):
            tensor = make(*args, **given)
            if tensor.device.type != "meta" and tensor.numel():
                elements = tensor.untyped_storage().size() // tensor.element_size()
                torch.as_strided(tensor, (elements,), (1,), 0).view(torch.uint8).fill_(byte)
            return tensor
        return made
    with torch.device("cpu"):
        torch.empty(0)  # torch caches its functions that take a device: do this before replacing them
    with ExitStack() as stack:
        for target, names in MAKERS.items():
            for name in names:
                stack.enter_context(mock.patch.object(target, name, filled(getattr(target, name))))
        yield


class Probe:
    """scales: those that the conversion accepts, including the canary's. 0xFF (NaN) is tried alone."""

    def __init__(self, call, size, scales=ALL_SCALES):
        self.call, self.size, self.scales = call, size, scales

    def layer(self, experts=EXPERTS):
        """A layer with the same value in every unit of a part."""
        values = {"codes": 0, "scales": SCALES[0], "bias": BIASES[0]}
        return {name: numpy.full(shape, values[PARTS[name]], numpy.uint16 if PARTS[name] == "bias" else numpy.uint8)
                for name, shape in self.size.shapes(experts).items()}

    def random(self, seed, experts=EXPERTS):
        made = numpy.random.default_rng(seed)
        layer = {}
        for name, shape in self.size.shapes(experts).items():
            if PARTS[name] == "bias":
                bits = made.integers(0, 1 << 16, shape, numpy.uint16)
                layer[name] = numpy.where((bits & 0x7F80) == 0x7F80, bits & 0xBFFF, bits)  # finite
            else:
                low, high = (self.scales[0], min(self.scales[-1], 254)) if PARTS[name] == "scales" else (0, 255)
                layer[name] = made.integers(low, high + 1, shape, numpy.uint8)
        return layer

    def run(self, layer, fill=0xA5):
        experts = len(layer["w13"])
        given = {name: torch.from_numpy(a.copy().view(numpy.int16)).view(torch.bfloat16) if a.dtype == numpy.uint16
                 else torch.from_numpy(a.copy()) for name, a in layer.items()}
        with torch.no_grad(), unwritten(fill):
            made = self.call(given)
        if not isinstance(made, dict):
            raise NoRearrangement(f"the conversion returned {type(made).__name__}, a dict of tensors was expected")
        return {name: stored(name, tensor, experts) for name, tensor in made.items() if tensor is not None}

    def sources(self):
        """The source part of each stored tensor."""
        layer, other = self.random(0), self.random(1)
        before, again, found = self.run(layer), self.run(layer), {}
        for key in before:
            if not numpy.array_equal(before[key].data, again[key].data):
                raise NoRearrangement(f"{key}: two conversions of one layer have different bytes")
        for name in layer:
            for key, after in self.run(layer | {name: other[name]}).items():
                if not numpy.array_equal(after.data, before[key].data):
                    if after.why:
                        raise NoRearrangement(after.why)
                    found.setdefault(key, []).append(name)
        for key in before:
            if len(found.get(key, ())) > 1:
                raise NoRearrangement(f"{key}: made of {' and '.join(found[key])} together; a layout keeps them apart")
        for name in self.layer():
            if sum(name in made_of for made_of in found.values()) != 1:
                raise NoRearrangement(f"{name}: stored in {[k for k in found if name in found[k]] or 'no tensor'}, "
                                      "one was expected")
        return before, {key: made_of[0] for key, made_of in found.items()}

    def of_digit(self, digit, swapped):
        """The layer whose every unit has binary digit `digit` of its number within its tensor; swapped: its complement."""
        layer = self.layer()
        for name, tensor in layer.items():
            flat = tensor.reshape(-1)
            if PARTS[name] != "codes":
                low, high = BIASES if PARTS[name] == "bias" else SCALES
                on = (numpy.arange(flat.size, dtype=numpy.int64) >> digit & 1) != swapped
                flat[...] = numpy.where(on, high, low)
                continue
            if digit < 3:
                flat[...] = (0xAA, 0xCC, 0xF0)[digit]
            else:
                flat[...] = -(numpy.arange(flat.size, dtype=numpy.int64) >> (digit - 3) & 1).astype(numpy.uint8)
            if swapped:
                flat ^= 0xFF
        return layer

    def uniform(self, value):
        layer = self.layer()
        for name, tensor in layer.items():
            tensor[...] = {"codes": (0, 0xFF), "scales": SCALES, "bias": BIASES}[PARTS[name]][value]
        return layer

    def widths(self, made_of, before):
        """{key: bytes of a stored unit, 0: bits are units}"""
        uniform = []
        for scale in (s for s in TELLING if s in self.scales):
            layer = self.layer()
            layer["w13_scale"][...] = layer["w2_scale"][...] = scale
            uniform.append(self.run(layer))
        widths = {}
        for key, name in made_of.items():
            dtype = before[key].dtype
            if PARTS[name] == "bias" and dtype not in (torch.bfloat16, torch.float32):
                raise NoRearrangement(f"{key}: biases as {dtype}; BF16 or F32 were expected")
            widths[key] = {"codes": 0, "bias": dtype.itemsize}.get(PARTS[name])
            if PARTS[name] == "scales":
                widths[key] = scale_width(key, dtype, [made[key].data for made in uniform])
        return widths

    def maps(self, made_of, before):
        """{key: the map of a stored tensor}. made_of: the source part of each tensor."""
        low, high = (self.run(self.uniform(value)) for value in (0, 1))
        widths = self.widths(made_of, before)
        readings = {key: Reading(key, name, widths[key], (low[key].data, high[key].data), self.layer()[name].size)
                    for key, name in made_of.items()}
        for digit in range(max(r.digits for r in readings.values())):
            on, off = (self.run(self.of_digit(digit, swapped)) for swapped in (False, True))
            for key, reading in readings.items():
                reading.take(digit, on[key].data, off[key].data)
        a, b = (self.run(self.layer(), fill) for fill in (0xA5, 0x5A))
        return {key: reading.map(a[key].data[0] != b[key].data[0]) for key, reading in readings.items()}


def scale_width(key, dtype, uniform):
    """Bytes of a stored scale: 1, or the size of an element. It is an element's size if some byte depends on the scales
    but does not determine them, or if only one byte of each element depends on them. uniform: the stored bytes of
    several layers, each with one scale everywhere."""
    data = numpy.sort(numpy.stack(uniform), axis=0)
    follows = data[0] != data[-1]
    lanes = follows.reshape(-1, dtype.itemsize)
    one_lane = dtype.itemsize > 1 and lanes.any(0).sum() == 1
    if (data[1:, follows] != data[:-1, follows]).all() and not one_lane:
        return 1
    if dtype.itemsize > 4:
        raise NoRearrangement(f"{key}: scales as {dtype}; a layout file has values of 1, 2 and 4 bytes")
    return dtype.itemsize


class Reading:
    """Finds the sources of one stored tensor's units, digit by digit. width: bytes of a unit; 0: a unit is a bit. both:
    the stored bytes if every source unit has the lower value, and if every unit has the higher. total: the number of
    source units."""

    def __init__(self, key, name, width, both, total):
        self.key, self.name, self.part, self.width = key, name, PARTS[name], width
        self.total = total * (8 if self.part == "codes" else 1)
        self.low, self.high = map(self.units, both)
        self.follows = self.low != self.high if self.width else self.low ^ self.high
        if not self.width and (inverse := self.low & ~self.high).any():
            raise NoRearrangement(f"{key}: {self.place(inverse)}: the inverse of a source bit")
        self.source = numpy.zeros(self.bits(self.low).shape, numpy.int32 if self.total < 1 << 31 else numpy.int64)
        self.digits = max(1, (self.total - 1).bit_length())

    def units(self, data):
        """Keeps codes as bytes of eight units."""
        return data.view(f"u{self.width}") if self.width else data

    def bits(self, data):
        return data if self.width else numpy.unpackbits(data, axis=1, bitorder="little")

    def take(self, digit, on, off):
        on, off = self.units(on), self.units(off)
        if self.width:
            is_on = (on == self.high) & self.follows
            copies = (is_on & (off == self.low)) | (self.follows & (on == self.low) & (off == self.high))
            wrong = ~numpy.where(self.follows, copies, (on == self.low) & (off == self.low))
        else:
            is_on = on & self.follows
            wrong = (on ^ off ^ self.follows) | ((on ^ self.low) & ~self.follows)
        if wrong.any():
            what = "value" if self.width else "bit"
            raise NoRearrangement(f"{self.key}: {self.place(wrong)}: no copy of one {what} of {self.name}: it depends on "
                                  "several, or on others' values")
        self.source |= self.bits(is_on).astype(self.source.dtype) << digit

    def place(self, wrong):
        """The place of the first value that is not zero."""
        expert, at = (int(n) for n in numpy.argwhere(wrong)[0])
        if self.width:
            return f"expert {expert}, byte {at * self.width}"
        value = int(wrong[expert, at])
        return f"expert {expert}, byte {at}, bit {(value & -value).bit_length() - 1}"

    def map(self, free):
        """The map of one expert. All experts must have the same map, and each source unit must be stored. If not all are
        stored equally often, the surplus must be in pads."""
        share = self.total // EXPERTS
        follows = self.bits(self.follows) != 0
        counts = numpy.bincount(self.source[follows], minlength=self.total)
        copies = int(counts.min())
        if copies == 0:
            unit, what = int(numpy.argmax(counts == 0)), "element" if self.width else "bit"
            raise NoRearrangement(f"{self.key}: {what} {unit % share} of {self.name}, expert {unit // share}, is stored "
                                  f"0 times, others {counts.max()}; a value that is lost cannot be restored")
        source = numpy.where(follows, self.source, -1)
        first = source[0]
        for expert in range(1, EXPERTS):
            if not numpy.array_equal(numpy.where(first >= 0, first + expert * share, -1), source[expert]):
                raise NoRearrangement(f"{self.key}: expert {expert} has another layout than expert 0")
        value = self.low[0].view(numpy.uint8).copy()
        add = int(self.low[0][first >= 0][0]) - SCALES[0] & 0xFF if self.part == "scales" else 0
        unit, first = (8 * self.width, first) if self.width else whole_units(first)
        counts = numpy.bincount(first[first >= 0])
        return Map(self.part, unit, first, value, free, copies, (first >= 0) & (counts[first] > copies), add)


def whole_units(source):
    """(bits of a unit, the source unit of each): units are bytes or nibbles if these stay together, else bits."""
    for unit in (8, 4):
        begins = source.reshape(-1, unit)[:, :1]
        together = numpy.where(begins < 0, -1, begins + numpy.arange(unit))
        if (begins[begins >= 0] % unit == 0).all() and numpy.array_equal(source.reshape(-1, unit), together):
            return unit, numpy.where(begins < 0, -1, begins // unit)[:, 0]
    return 1, source
