#!/usr/bin/env python3
"""random_compare.py WORK ARM.VARIANT ARM.VARIANT ..: compares outputs of random_lengths.py, every two of the given ones.

Two outputs of a request have the same tokens before the first position at which they differ, so that their log probabilities
there are those of teacher forcing. `gap` is the larger of the two differences between an output's own log probability and that
of the other's token. If that token is not among the best, it is the least that the gap can be. `before` is the difference of
the log probabilities of the equal tokens before that position.
"""

import glob
import itertools
import os
import sys


def load(work, of):
    import numpy
    arm, variant = of.split(".", 1)
    files = {int(os.path.basename(f).split(".")[0]): f for f in glob.glob(f"{work}/{arm}/*.{variant}.npz")
             if not f.endswith(".part.npz")}
    return {chunk: dict(numpy.load(f)) for chunk, f in files.items()}


def gap_at(a, va, b, vb):
    """(gap, whether it is the least that it can be) at a position: tokens and log probabilities, the output's own first."""
    gaps, least = [], False
    for tokens, values, other in ((a, va, b[0]), (b, vb, a[0])):
        where = (tokens[1:] == other).nonzero()[0]
        least |= not len(where)
        gaps.append(values[0] - (values[1 + where[0]] if len(where) else values[1:].min()))
    return max(map(float, gaps)), least


def compare(x, y):
    import numpy
    first, gaps, before, equal, requests, bounds = [], [], [], 0, 0, 0
    for chunk in sorted(set(x) & set(y)):
        one, other, end = x[chunk], y[chunk], 0
        for n in one["outs"]:
            rows = slice(end, end + int(n))
            end, requests = end + int(n), requests + 1
            a, b, va, vb = one["ids"][rows], other["ids"][rows], one["values"][rows], other["values"][rows]
            differ = (a[:, 0] != b[:, 0]).nonzero()[0]
            upto = int(differ[0]) if len(differ) else int(n)
            before.append(numpy.abs(va[:upto, 0] - vb[:upto, 0]))
            equal += numpy.array_equal(a, b) and numpy.array_equal(va, vb)
            if len(differ):
                gap, least = gap_at(a[upto], va[upto], b[upto], vb[upto])
                first.append(upto), gaps.append(gap)
                bounds += least
    return {"requests": requests, "equal bits": equal, "differ": len(first), "bounds": bounds,
            "first": first, "gap": gaps, "before": numpy.concatenate(before) if before else []}


def main():
    import numpy
    work, given = sys.argv[1], sys.argv[2:]
    loaded = {of: load(work, of) for of in given}
    for of, chunks in loaded.items():
        print(f"{of}: {len(chunks)} chunks, {sum(int(c['ins'].sum()) for c in chunks.values())} tokens in, "
              f"{sum(int(c['outs'].sum()) for c in chunks.values())} out, "
              f"{sum(int(c['bad']) for c in chunks.values())} bad log probabilities")
    for one, other in itertools.combinations(given, 2):
        r = compare(loaded[one], loaded[other])
        numbers = {k: "/".join(f"{numpy.quantile(r[k], q):.3f}" for q in (.5, .99, .999, 1)) if len(r[k]) else "none"
                   for k in ("first", "gap", "before")}
        print(f"{one} and {other}: {r['requests']} requests, {r['differ']} differ, {r['equal bits']} have equal bits; "
              f"median/99 %/99.9 %/greatest: first position {numbers['first']}, gap {numbers['gap']} "
              f"({r['bounds']} are bounds), before {numbers['before']}")


if __name__ == "__main__":
    main()
