"""Describes a map as a layout file does: row order, pads, and modes over the rows of the storage
(mxfp4-pack-layout(5))."""

from itertools import chain, islice, product
from math import prod
from typing import NamedTuple

import numpy

from . import NoRearrangement

BLOCKS = 0, 1, 2, 4, 8, 16, 32, 64, 128
MOST_STEPS = 1 << 18   # for all modes: a larger file is useless
MOST_TRIED = 4         # modes for a row order and a size of the storage


class Fit(NamedTuple):
    block: int
    up_first: bool
    half: int          # rows of gate, and of up, with pads; of w2: all rows
    rows: int          # rows of the storage
    row_bytes: int     # bytes of a row of the storage
    modes: list        # [count, rows, bits] or [[rows, bits], ..]


def divisors(n):
    return sorted({d for i in range(1, int(n ** 0.5) + 1) if n % i == 0 for d in (i, n // i)})


def digit(rows, known, alone=False):
    """Finds one list of steps, for digits 0 .., that fits every row of `rows` [others, count, 2]. Returns the steps and
    the begin of each row, or None if no list fits. Digits that no row knows have the others' even step; if only digit 0
    is known, the list is empty. alone: the same for any other digit, whose begins are then those of this
    digit; and begins are in the storage."""
    count = rows.shape[1]
    best = int(known.sum(0).argmax())
    both = known & known[:, best:best + 1]
    example = both.argmax(0)
    found = both[example, numpy.arange(count)]
    if not found.any():
        return None
    steps = rows[example, numpy.arange(count)] - rows[example, best]
    for some in (slice(0, 256), slice(None)):  # a few rows refuse most candidates
        if ((rows[some] - rows[some, best:best + 1] != steps).any(2) & both[some]).any():
            return None
    if found.sum() == 1:
        is_alone = alone and known.sum() == known[:, best].sum()
        return ([], rows[:, best]) if found[0] or is_alone else None
    if not found.all():
        first, second = numpy.flatnonzero(found)[:2]
        if second != first + 1:
            return None
        even = (steps[second] - steps[first]) * numpy.arange(count)[:, None]
        if (steps - steps[first] != even - even[first])[found].any():
            return None
        steps = even
    steps = steps - steps[0]
    begins = rows - steps
    first = known.argmax(1)
    begin = begins[numpy.arange(len(rows)), first]
    if (known & (begins != begin[:, None]).any(2)).any():
        return None
    if alone and (begin[known.any(1)] + steps.min(0) < 0).any():  # other digits cannot make up for this
        return None
    return steps, begin


class Rules(NamedTuple):
    """What factor() accepts. even: only digits with one step. sides: rows and bits of the storage, which such digits
    divide; or None. greedy: only the first digit that fits, which is fast and nearly always right.
    alone: see digit()."""
    even: bool = False
    sides: tuple | None = None
    greedy: bool = False
    alone: bool = False

    def accept(self, mode):
        if not is_even(mode):
            return not self.even
        return mode[1] is None or not self.sides or \
            not any(step and side % (step * mode[0]) for step, side in zip(mode[1:], self.sides))


def factor(at, known, rules=Rules()):
    """Yields modes of places [units, 2], fitted to the known places, the likeliest first: of the digits that fit, the
    shortest is tried first."""
    if len(at) == 1:
        yield []
        return
    tried = []
    for count in divisors(len(at))[1:]:
        if count > MOST_STEPS:
            return
        found = digit(at.reshape(-1, count, 2), known.reshape(-1, count), rules.alone)
        if not found:
            continue
        mode = as_mode(found[0]) if len(found[0]) else [count, None, None]
        if is_even(mode):
            if any(count % other[0] == 0 and mode[1:] == other[1:] for other in tried):
                continue  # two digits, which were tried
            tried.append(mode)
        if rules.accept(mode):
            for others in factor(found[1], known.reshape(-1, count).any(1), rules):
                yield [mode, *others]
            if rules.greedy:
                return


def as_mode(steps):
    """The least step is 0 in each direction: the first place of all is (0, 0)."""
    steps = steps - steps.min(0)
    if (steps[0] == 0).all() and (steps == steps[1] * numpy.arange(len(steps))[:, None]).all():
        return [len(steps), int(steps[1][0]), int(steps[1][1])]
    return steps.tolist()


def gaps(modes, side, all):
    """The digits [step, count] that `modes` lack to reach each of `all` rows (side 1) or bits (side 2) once."""
    odd = [m for m in modes if not is_even(m)]
    reach = 1 + sum(max(s[side - 1] for s in steps_of(m)) for m in odd)
    out = []
    for count, *steps in sorted((m for m in modes if is_even(m) and m[side]), key=lambda m: m[side]):
        if steps[side - 1] > reach:
            out.append([reach, steps[side - 1] // reach])
        reach = max(reach, steps[side - 1]) * count if not odd else reach + steps[side - 1] * (count - 1)
    return out + ([[reach, all // reach]] if all > reach else [])


def completed(modes, rows, bits):
    """Completes digits that only move pads, whose steps are therefore unknown, so that they fill the gaps. Yields every
    way to do so."""
    unknown = [i for i, m in enumerate(modes) if is_even(m) and m[1] is None]
    known = [m for i, m in enumerate(modes) if i not in unknown]
    for ways in product((1, 2), repeat=len(unknown)):
        made, left = [list(m) for m in modes], {1: gaps(known, 1, rows), 2: gaps(known, 2, bits)}
        for i, way in zip(unknown, ways):
            gap = next((g for g in left[way] if g[1] % made[i][0] == 0), None)
            if gap is None:
                break
            made[i][1:] = [gap[0] * (way == 1), gap[0] * (way == 2)]
            gap[:] = gap[0] * made[i][0], gap[1] // made[i][0]
        else:
            yield merged(made)


def is_even(mode):
    return not isinstance(mode[0], list)


def steps_of(mode):
    return [[d * mode[1], d * mode[2]] for d in range(mode[0])] if is_even(mode) else mode


def merged(modes):
    out = []
    for mode in modes:
        last = out[-1] if out else None
        if last and is_even(last) and is_even(mode) and mode[1:] == [last[0] * last[1], last[0] * last[2]]:
            last[0] *= mode[0]
        else:
            out.append(list(mode))
    return out


def rectangles(mask):
    """(rows, columns): slices that cover the true places of a matrix, each once."""
    changes = numpy.flatnonzero((mask[1:] != mask[:-1]).any(1)) + 1
    for begin, end in zip([0, *changes], [*changes, len(mask)]):
        edges = numpy.flatnonzero(numpy.diff(numpy.concatenate([[0], mask[begin].astype(numpy.int8), [0]])))
        for first, last in zip(edges[0::2], edges[1::2]):
            yield slice(int(begin), int(end)), slice(int(first), int(last))


def places(modes):
    """The source of every unit, in the order in which the modes count."""
    at = numpy.zeros((1, 2), numpy.int64)
    for mode in modes:
        at = (numpy.array(steps_of(mode), numpy.int64)[:, None] + at[None]).reshape(-1, 2)
    return at


class Fitting:
    """Fits the description of one tensor. map: probe.Map. real: the source's rows and bytes of a row. views: 2 for w13,
    gate and up. pairs: gate and up rows alternate in the source. like: the preferred block, up_first and perhaps half, and how
    many more modes than others this description may have."""

    def __init__(self, key, map, real, views, pairs, like):
        self.key, self.map, self.real, self.views, self.pairs = key, map, real, views, pairs
        self.like, self.halves = like, range(1 << 30)  # the possible rows of gate, if they are not in blocks
        self.least = real  # of the storage
        per_row = real[1] * 8 // map.unit
        self.sourced = map.source >= 0
        self.set_copies(map.copies)
        source = numpy.where(self.sourced, map.source, 0)
        self.row, self.bit = source // per_row, source % per_row * map.unit

    def set_copies(self, copies, firsts=False):
        """The storage is stored `copies` times; further copies are pads. known: the units that are surely no pads, or
        with `firsts` the first copies."""
        self.copies, self.bytes = copies, len(self.map.value) // copies
        self.known = self.sourced & ~self.map.often
        if firsts:
            first = numpy.unique(self.map.source[self.sourced], return_index=True)[1]
            self.known[...] = False
            self.known[numpy.flatnonzero(self.sourced)[first]] = True

    def storage(self, order):
        """The storage's row of every unit's source row."""
        block, up_first, half = order
        if self.views == 1:
            return self.row
        n = self.real[0] // 2
        view, row = (self.row % 2, self.row // 2) if self.pairs else (self.row // n, self.row % n)
        view = view ^ up_first
        return view * half + row if block == 0 else row // block * 2 * block + view * block + row % block

    def orders(self, rows):
        """The possible row orders of a storage of `rows` rows, likely ones first."""
        if self.views == 1:
            return [(0, False, rows)]
        n = self.real[0] // 2
        halves = dict.fromkeys([rows // 2, *(n + -n % m for m in (1, 32, 64, 128, 256, 512))])
        out = [(0, first, h) for h in halves if n <= h <= rows // 2 and h in self.halves for first in (False, True)]
        return out + [(b, first, rows // 2) for b in BLOCKS[1:] if 0 in (n % b, rows // 2 % b) for first in (False, True)]

    def sides(self):
        """The possible numbers of rows and row bytes of the storage, in order of the number of pads."""
        if self.map.part == "bias":  # a row is one number
            return [(self.bytes // self.real[1], self.real[1])]
        width = self.map.element.itemsize
        pairs = [(self.bytes // b, b) for b in divisors(self.bytes)
                 if b >= self.least[1] and self.bytes // b >= self.least[0] and b % width == 0]
        return sorted(pairs, key=lambda s: (s[1] - self.real[1]) * self.real[0] + (s[0] - self.real[0]) * self.real[1])

    def modes(self, order, rules):
        """Yields a few modes of all units. If all words are alike, they are fitted apart from their bits, which is
        faster."""
        at = numpy.stack([self.storage(order), self.bit], 1)
        begin = [[self.map.unit, 0, 1]] if self.map.unit > 1 else []
        for unit in (32, 64, 8):
            size = unit // self.map.unit
            if size > 1 and len(at) % size == 0:
                found = digit(at.reshape(-1, size, 2), self.known.reshape(-1, size), rules.alone)
                if found and len(found[0]):
                    known = self.known.reshape(-1, size).any(1)
                    for inner in islice(factor(found[0], numpy.ones(size, bool), rules), 1):
                        for outer in islice(factor(found[1], known, rules), MOST_TRIED):
                            yield begin + inner + outer
                    if rules.greedy:
                        return
                    break
        for modes in islice(factor(at, self.known, rules), MOST_TRIED):
            yield begin + modes

    def rows_of(self, fit, bits):
        """Stored bits, arranged as the rows of the storage from which they come."""
        at = places(fit.modes)
        grid = numpy.zeros((fit.rows, fit.row_bytes * 8), numpy.uint8)
        grid[at[:, 0], at[:, 1]] = bits
        return numpy.packbits(grid, axis=1, bitorder="little")

    def repeated(self, fit):
        """The stored units that repeat a source unit outside of its own place."""
        at = places(fit.modes)[::self.map.unit]
        own = self.storage((fit.block, fit.up_first, fit.half)), self.bit
        return self.sourced & ((at[:, 0] != own[0]) | (at[:, 1] != own[1]))

    def repeats(self, fit):
        """The pads that repeat source values: rectangles of the storage, and the place that each of their units repeats
        (mxfp4-pack-layout(5))."""
        unit, some = self.map.unit, self.repeated(fit)
        if not some.any():
            return []
        at = places(fit.modes)[::unit][some]
        of = numpy.full((fit.rows, fit.row_bytes * 8 // unit, 2), -1)
        of[at[:, 0], at[:, 1] // unit, 0] = self.storage((fit.block, fit.up_first, fit.half))[some]
        of[at[:, 0], at[:, 1] // unit, 1] = self.bit[some]
        found = []
        for rows, columns in rectangles(of[:, :, 0] >= 0):
            froms = of[rows, columns].reshape(-1, 2)
            modes = next(factor(froms, numpy.ones(len(froms), bool)), None)
            if modes is None:
                raise NoRearrangement(f"{self.key}: pads that repeat values of the source in no order that modes describe")
            found.append({"rows": [rows.start, rows.stop - rows.start],
                          "bits": [columns.start * unit, (columns.stop - columns.start) * unit],
                          "from": froms.min(0).tolist(), "modes": merged([[unit, 0, 1]] * (unit > 1) + modes)})
        return found

    def pads(self, fit, padded_rows):
        """The pad of each kind, a byte or a scale's value (None if there is no such pad), and the byte at which pads of
        columns end. None if pads of one kind differ."""
        grid = self.rows_of(fit, numpy.unpackbits(self.map.value, bitorder="little")).view(self.map.element)
        free = numpy.repeat(self.map.free, 8) | numpy.repeat(self.repeated(fit), self.map.unit)
        free = self.rows_of(fit, free).view(self.map.element) > 0
        real = numpy.zeros(fit.rows, bool)
        real[self.storage((fit.block, fit.up_first, fit.half))[self.sourced]] = True
        size = self.map.element.itemsize
        padded, width = numpy.arange(fit.rows) < padded_rows, self.real[1] // size

        def values(rows, begin, end):
            return numpy.unique(grid[rows, begin:end][~free[rows, begin:end]])

        for end in range(fit.row_bytes // size, width - 1, -1):
            storage = [values(padded, end, None), values(~padded, 0, None)]
            found = {"row": values(~real & padded, 0, width), "column": values(real, width, end),
                     "corner": values(~real & padded, width, end), "storage": numpy.unique(numpy.concatenate(storage))}
            if all(len(some) <= 1 for some in found.values()):
                return {at: int(some[0]) if len(some) else None for at, some in found.items()}, end * size
        return None

    def is_right(self, order, rows, row_bytes, modes):
        if prod(m[0] for m in modes if is_even(m) and m[1:] == [0, 0]) != self.copies:
            return False
        at = places(modes)
        number = at[:, 0] * row_bytes * 8 + at[:, 1]
        if len(number) != self.bytes * 8 * self.copies or (at < 0).any() or (at >= (rows, row_bytes * 8)).any():
            return False
        taken = numpy.zeros(self.bytes * 8, bool)
        taken[number] = True
        if not taken.all():
            return False
        want = self.storage(order) * row_bytes * 8 + self.bit
        place = number[::self.map.unit]
        if (place[self.known] != want[self.known]).any():
            return False
        source = numpy.full(self.bytes * 8, -1)  # of each place of the storage
        source[want[self.sourced]] = self.map.source[self.sourced]
        source = source[place]
        return (source == self.map.source)[source >= 0].all()

    def best(self):
        repeat = self.map.often.any()
        tries = [(self.map.copies, False)] + [(self.map.copies, True), (1, True)] * bool(repeat)
        for alone, (copies, firsts) in product((False, True) if repeat else (False,), tries):
            self.set_copies(copies, firsts)
            if len(self.map.value) % copies == 0 and self.known.any():
                for even, divides, greedy in ((0, 0, 1), (1, 1, 0), (0, 1, 0), (0, 0, 0)):
                    if found := self.best_fit(even, divides, greedy, alone):
                        return found
        often = f", all of it {self.map.copies} times," if self.map.copies > 1 else ""
        raise NoRearrangement(f"{self.key}: {len(self.map.value)} bytes of an expert{often} that no row order, pads and "
                              "modes describe")

    def best_fit(self, even, divides, greedy, alone):
        """The fit with the fewest steps. For the rest see Rules."""
        found = None
        for rows, row_bytes in self.sides():
            for order in self.orders(rows):
                rules = Rules(even, (rows, row_bytes * 8) if divides else None, greedy, alone)
                made = self.modes(order, rules)
                for modes in chain.from_iterable(completed(m, rows, row_bytes * 8) for m in made):
                    steps = sum(1 if is_even(m) else len(m) for m in modes)
                    steps -= self.like[1] * (order[:len(self.like[0])] == self.like[0])
                    if (found and steps >= found[0]) or steps > MOST_STEPS:
                        continue
                    if self.is_right(order, rows, row_bytes, modes):
                        found = steps, Fit(order[0], order[1], order[2], rows, row_bytes, modes)
        return found and found[1]
