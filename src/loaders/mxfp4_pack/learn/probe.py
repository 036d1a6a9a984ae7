"""Where every stored bit comes from: a conversion is run on bytes that name their own place.

A conversion is a function from a layer, a dict of named tensors, to a dict of tensors with the experts outermost:

    w13        U8 [experts, 2 * intermediate, hidden / 2]    codes, the even column in the low nibble
    w13_scale  U8 [experts, 2 * intermediate, hidden / 32]   E8M0
    w13_bias   BF16 [experts, 2 * intermediate]              where there are biases
    w2, w2_scale, w2_bias                                    [experts, hidden, intermediate ..]

Each pass writes one binary digit of the number of every unit (a bit of the codes, a scale, a bias) in one of two values,
and again with the values exchanged, so that copies, inversions, constants and XORs differ. What is not written shows in
two runs in which torch.empty gives memory of 0xA5 and of 0x5A.
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
SCALES = 120, 135   # two that every kernel takes
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
    """A tensor that the conversion gave: its bytes, [experts, bytes], and how it sees them."""
    data: numpy.ndarray
    dtype: torch.dtype
    shape: tuple    # of one expert, as it lies in memory
    view: tuple | None   # (shape, strides) of one expert, where the tensor is no contiguous one


class Map(NamedTuple):
    """Of one expert's stored tensor. unit: bits of a unit; source: the source's unit of each stored one, -1: none;
    value: the bytes of those without; free: bytes that the conversion does not write; add: to scales."""
    unit: int
    source: numpy.ndarray
    value: numpy.ndarray
    free: numpy.ndarray
    add: int = 0


def stored(name, tensor, experts):
    if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0 or tensor.shape[0] != experts:
        raise NoRearrangement(f"{name}: no tensor of {experts} experts")
    tensor = tensor.detach()
    order = sorted(range(1, tensor.dim()), key=lambda d: (-tensor.stride(d), d))
    in_memory = tensor.permute(0, *order)
    if not in_memory.is_contiguous():
        raise NoRearrangement(f"{name}: shape {list(tensor.shape)} with strides {list(tensor.stride())} leaves memory out, "
                              "or takes it twice")
    data = in_memory.contiguous().view(torch.uint8).reshape(experts, -1).cpu().numpy()
    view = None if order == sorted(order) else (tuple(tensor.shape[1:]), tensor.stride()[1:])
    return Stored(data.copy(), tensor.dtype, tuple(in_memory.shape[1:]), view)


@contextmanager
def unwritten(byte):
    """torch.empty and its kin give memory of these bytes."""
    def filled(make):
        def made(*args, **given):
            tensor = make(*args, **given)
            if tensor.device.type != "meta" and tensor.numel():
                elements = tensor.untyped_storage().size() // tensor.element_size()
                torch.as_strided(tensor, (elements,), (1,), 0).view(torch.uint8).fill_(byte)
            return tensor
        return made
    with ExitStack() as stack:
        for target, names in MAKERS.items():
            for name in names:
                stack.enter_context(mock.patch.object(target, name, filled(getattr(target, name))))
        yield


class Probe:
    def __init__(self, call, size):
        self.call = call
        self.size = size

    def layer(self, experts=EXPERTS):
        """One in which nothing stands out."""
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
                layer[name] = made.integers(0, 255 if PARTS[name] == "scales" else 256, shape, numpy.uint8)
        return layer

    def run(self, layer, fill=0xA5):
        experts = len(layer["w13"])
        given = {name: torch.from_numpy(a.copy().view(numpy.int16)).view(torch.bfloat16) if a.dtype == numpy.uint16
                 else torch.from_numpy(a.copy()) for name, a in layer.items()}
        with torch.no_grad(), unwritten(fill):
            made = self.call(given)
        return {name: stored(name, tensor, experts) for name, tensor in made.items() if tensor is not None}

    def sources(self):
        """The name of the part that each stored tensor is made of."""
        layer, other = self.random(0), self.random(1)
        before, found = self.run(layer), {}
        for name in layer:
            for key, after in self.run(layer | {name: other[name]}).items():
                if not numpy.array_equal(after.data, before[key].data):
                    found.setdefault(key, []).append(name)
        for key in before:
            if len(found.get(key, ())) > 1:
                raise NoRearrangement(f"{key}: made of {' and '.join(found[key])} together; a layout keeps them apart")
        for name in self.layer():
            if sum(name in made_of for made_of in found.values()) != 1:
                raise NoRearrangement(f"{name}: stored in {[k for k in found if name in found[k]] or 'no tensor'}, "
                                      "one was expected")
        return before, {key: made_of[0] for key, made_of in found.items()}

    def of_digit(self, name, digit, swapped):
        """The layer whose `name` has binary digit `digit` of every unit's number; swapped: its complement."""
        layer = self.layer()
        flat = layer[name].reshape(-1)
        if PARTS[name] == "codes":
            if digit < 3:
                flat[...] = (0xAA, 0xCC, 0xF0)[digit]
            else:
                flat[...] = -(numpy.arange(flat.size, dtype=numpy.int64) >> (digit - 3) & 1).astype(numpy.uint8)
            if swapped:
                flat ^= 0xFF
            return layer
        low, high = BIASES if PARTS[name] == "bias" else SCALES
        on = (numpy.arange(flat.size, dtype=numpy.int64) >> digit & 1) != swapped
        flat[...] = numpy.where(on, high, low)
        return layer

    def map(self, key, name, like):
        """The map of stored tensor `key`, which is made of `name`."""
        part = PARTS[name]
        width = {"codes": None, "scales": 1, "bias": like.dtype.itemsize}[part]
        if part == "bias" and like.dtype not in (torch.bfloat16, torch.float32):
            raise NoRearrangement(f"{key}: biases as {like.dtype}; BF16 or F32 were expected")

        def units(layer):
            data = self.run(layer)[key].data
            return numpy.unpackbits(data, axis=1, bitorder="little") if width is None else \
                data if width == 1 else data.view(f"u{width}")

        total = self.layer()[name].size * (8 if part == "codes" else 1)
        low, high = (units(self.uniform(name, v)) for v in (0, 1))
        follows = low != high
        source = numpy.zeros(low.shape, numpy.int64)
        for digit in range(max(1, (total - 1).bit_length())):
            on, off = (units(self.of_digit(name, digit, swapped)) for swapped in (False, True))
            is_high, is_low = on == high, on == low
            known = numpy.where(follows, (is_high & (off == low)) | (is_low & (off == high)), is_low & (off == low))
            if not known.all():
                at, what = numpy.argwhere(~known)[0], "bit" if part == "codes" else "value"
                raise NoRearrangement(f"{key}: {self.place(at, width)}: no copy of one {what} of {name}: it depends on "
                                      "several, or on others' values")
            source |= (is_high & follows).astype(numpy.int64) << digit
        if part == "codes" and (low > high).any():
            at = numpy.argwhere(low > high)[0]
            raise NoRearrangement(f"{key}: {self.place(at, width)}: the inverse of a source bit")
        return self.one_expert(key, name, numpy.where(follows, source, -1), low, width, total)

    def uniform(self, name, value):
        layer = self.layer()
        layer[name][...] = ({"codes": (0, 0xFF), "scales": SCALES, "bias": BIASES}[PARTS[name]])[value]
        return layer

    @staticmethod
    def place(index, width):
        expert, unit = index
        return f"expert {expert}, " + (f"byte {unit * width}" if width else f"byte {unit // 8}, bit {unit % 8}")

    def one_expert(self, key, name, source, low, width, total):
        """The same for all experts, each source unit once."""
        share = total // EXPERTS
        counts = numpy.bincount(source[source >= 0], minlength=total)
        if (counts != 1).any():
            unit = int(numpy.argmax(counts != 1))
            what = "bit" if width is None else "element"
            raise NoRearrangement(f"{key}: {what} {unit % share} of {name}, expert {unit // share}, is stored "
                                  f"{counts[unit]} times, once was expected")
        first = source[0]
        for expert in range(1, EXPERTS):
            if not numpy.array_equal(numpy.where(first >= 0, first + expert * share, -1), source[expert]):
                raise NoRearrangement(f"{key}: expert {expert} lies otherwise than expert 0")
        base = self.layer()
        a, b = (self.run(base, fill)[key].data[0] for fill in (0xA5, 0x5A))
        if width is None:
            value = numpy.packbits(low[0], bitorder="little")
        else:
            value = low[0].view(numpy.uint8).copy()
        add = 0
        if PARTS[name] == "scales":
            add = int(low[0][first >= 0][0]) - SCALES[0] & 0xFF
        return Map(1 if width is None else 8 * width, first, value, a != b, add)
