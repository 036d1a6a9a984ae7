"""Random conversions: those that a layout file can describe, and those just outside of that class.

    random_conversions.py inside|outside FIRST COUNT     MXFP4_PACK names the program

learns each conversion of testdata/tiny/gpt-oss and prints the verdicts. One that is inside is also packed, unpacked and
verified with each driver of the processor. A conversion inside permutes nibbles, bytes or words by the digits of their
places, with any factors; it pads with constants or with repeated source values, and stores copies."""

import filecmp
import math
import os
import random
import re
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as functional

import program
from formats import nibbles
from mxfp4_pack.learn import NoRearrangement, __main__ as command
from mxfp4_pack.learn.layout import learn
from mxfp4_pack.learn.probe import Probe
from raw_layers import checkpoint_of, tensors_of
from test_learn import KEYS as PARTS, NAMES, TINY

KEYS = {name: NAMES[key] for name, key in PARTS.items()}
MULTIPLES = 1, 1, 1, 2, 3, 16, 24, 32, 40, 48, 64, 96, 128


def factors(made, n):
    """Random factors of n, mostly few; their product is n."""
    out = []
    while n > 1:
        count = made.choice([d for d in range(2, n + 1) if n % d == 0])
        out.append(count)
        n //= count
    made.shuffle(out)
    return out


def up(n, multiple):
    return -(-n // multiple) * multiple


def from_nibbles(t):
    return t[..., 0::2] | t[..., 1::2] << 4


def grown(t, rows, columns, how, value):
    """Pads [experts, rows, columns] to more rows and columns: with a value, or by source values in some order."""
    if how == "constant":
        return functional.pad(t, (0, columns - t.shape[2], 0, rows - t.shape[1]), value=value)
    for dim, size in ((1, rows), (2, columns)):
        at, n = torch.arange(size), t.shape[dim]
        how = "last" if size >= 2 * n else how  # if all are repeated, nobody can say which are no pads
        at = {"last": at.clamp(max=n - 1), "wrap": at % n, "first": torch.where(at < n, at, 0)}[how]
        t = t.index_select(dim, at)
    return t


def spread(made, pads=("constant",), of_byte=1):
    """A random permutation of a matrix of small numbers [experts, rows, columns] by digits, after pads of its own. Rows
    are whole bytes, of `of_byte` numbers each."""
    row_multiple, column_multiple = (made.choice(MULTIPLES), made.choice(MULTIPLES[:6])) if pads else (1, 1)
    how, copies = (made.choice(pads), made.choice((1, 1, 1, 1, 2, 3))) if pads else ("constant", 1)
    value, seed = made.choice((0, 0, 15, 7)), made.random()

    def call(t, whole):
        made = random.Random(seed)
        rows = up(t.shape[1], row_multiple)
        columns = up(t.shape[2], math.lcm(column_multiple * whole, of_byte))
        t = grown(t, rows, columns, how, value)
        parts = factors(made, rows), factors(made, columns // whole) + [whole] * (whole > 1)
        digits = list(range(len(parts[0]) + len(parts[1])))
        kept = digits[-1:] if whole > 1 else []  # what stays together
        moved = digits[:-1] if kept else digits
        made.shuffle(moved)
        t = t.reshape(len(t), *parts[0], *parts[1]).permute(0, *(d + 1 for d in moved), *(d + 1 for d in kept))
        if copies > 1:
            t = torch.stack([t] * copies, 1 + made.randrange(len(moved) + 1))
        return t.reshape(len(t), -1)
    return call, f"rows to {row_multiple}, columns to {column_multiple}, {how} {value}, {copies} copies"


def codes(made, pads, _):
    grain = made.choice((1, 1, 1, 2, 2, 4, 8))  # nibbles that stay together
    move, what = spread(made, pads, 2)
    word = made.choice((None, (0, 4, 1, 5, 2, 6, 3, 7), (7, 6, 5, 4, 3, 2, 1, 0))) if grain == 8 else None

    def call(t):
        out = from_nibbles(move(nibbles(t), grain))
        if word:
            parts = nibbles(out).reshape(len(out), -1, 8)[:, :, list(word)]
            out = from_nibbles(parts.flatten(1))
        return out.contiguous()
    return call, f"codes by {grain} nibbles, {what}, words {word}"


def scales(made, pads, adds):
    move, what = spread(made, pads)
    add = made.choice(adds)

    def call(t):
        out = move(t, 1)
        if add == "floats":
            return (out.to(torch.int32) << 23).view(torch.float32)
        return (out.int() + 20).clamp(max=255).to(torch.uint8) if add == "saturating" else out + add
    return call, f"scales, {what}, add {add}"


def bias(made, *_):
    wide = made.random() < 0.3
    multiple = made.choice(MULTIPLES)
    return (lambda t: (functional.pad(t, (0, up(t.shape[1], multiple) - t.shape[1])).float() if wide else t.clone())), \
        f"bias, wide {wide}"


def rows_in_order(t, block, up_first):
    """w13's rows of gate and up, given in turn, in blocks of `block`; 0: halves."""
    gate, of_up = t[:, 0::2], t[:, 1::2]
    first, second = (of_up, gate) if up_first else (gate, of_up)
    if block == 0:
        return torch.cat([first, second], 1)
    shape = len(t), -1, block, *t.shape[2:]
    return torch.stack([first.reshape(shape), second.reshape(shape)], 2).flatten(1, 3)


def inside(seed, pads=("constant", "constant", "last", "wrap", "first"), adds=(0, 0, 0, 6, "saturating", "floats")):
    """(a conversion, what it does)"""
    made = random.Random(seed)
    hidden, intermediate = (up(n, made.choice((32, 32, 64, 96, 128))) for n in (TINY.hidden, TINY.intermediate))
    parts, order = {}, (made.choice((0, 0, 1, 1, 2, 4, 8, 16)), made.random() < 0.3)
    for name in KEYS:
        maker = bias if "bias" in name else scales if "scale" in name else codes
        parts[name] = maker(made, pads, adds)
    all_pads = pads and made.random() < 0.5  # of the layer's sizes, too
    hidden, intermediate = (hidden, intermediate) if all_pads else TINY[:2]

    def call(layer):
        out = {}
        for name, t in layer.items():
            if name.startswith("w13"):
                t = functional.pad(t, (0, 0) * (t.dim() - 2) + (0, 2 * intermediate - t.shape[1]))
                t = rows_in_order(t, *order)
            else:
                t = functional.pad(t, (0, 0) * (t.dim() - 2) + (0, hidden - t.shape[1]))
            if t.dim() == 3:
                columns = (hidden if name.startswith("w13") else intermediate) // (32 if "scale" in name else 2)
                t = functional.pad(t, (0, columns - t.shape[2]))
            out[KEYS[name]] = parts[name][0](t)
        return out
    return call, f"padded {hidden} {intermediate}, order {order}; " + "; ".join(f"{n}: {p[1]}" for n, p in parts.items())


CODES, SCALES = "w13_weight", "w13_weight_scale"
STRAY = "no copy of one (bit|value)|depend on more|the inverse|another layout"
OUTSIDE = {
    "xor of neighbors": (CODES, lambda t, k: t ^ t.roll(k, 1), STRAY),
    "xor of another tensor": (CODES, lambda t, k: t, "together"),
    "xor with a bit": (CODES, lambda t, k: t ^ ((t >> k % 7 + 1) & 1), STRAY),
    "an inverted bit": (CODES, lambda t, k: t ^ (1 << k % 8), "inverse"),
    "a lost bit": (CODES, lambda t, k: t & ~(1 << k % 8) & 0xFF, "stored 0 times"),
    "a lost byte": (CODES, lambda t, k: torch.cat([t[:, :k], t[:, k + 1:], t[:, :1] * 0], 1), "stored 0 times"),
    "a code that is replaced": (CODES, lambda t, k: torch.where(t == 16 + k, t ^ 1, t), STRAY),
    "a sum": (CODES, lambda t, k: t + k % 15 + 1, STRAY),
    "sorted": (CODES, lambda t, k: t.sort(1).values, STRAY + "|stored 0 times"),
    "rounded scales": (SCALES, lambda t, k: t & (0xFE if k % 2 else 0xFC), "lossy"),
    "less another scale": (SCALES, lambda t, k: t - t[:, :1] + 120, STRAY + "|stored 0 times|lossy"),
    "clamped scales": (SCALES, lambda t, k: t.clamp(90 + k % 30, 140 + k % 30), "lossy"),
    "the larger of two scales": (SCALES, lambda t, k: torch.maximum(t, t.roll(k, 1)), STRAY + "|stored 0 times"),
    "rows in a new order each time": (CODES, lambda t, k: t[:, torch.randperm(t.shape[1])], "two conversions"),
    "a scale that moves with a value": (SCALES, lambda t, k: torch.where(t[:, :1] > 128, t.roll(1, 1), t), STRAY),
}


def outside(seed):
    """(a conversion, what it does, the expected reason)"""
    made = random.Random(seed)
    call, _ = inside(seed, (), (0,))
    what = list(OUTSIDE)[seed % len(OUTSIDE)]
    key, spoil, why = OUTSIDE[what]
    k = made.randrange(1, 40)

    def spoiled(layer):
        out = call(layer)
        t = out[key]
        if what == "xor of another tensor":
            out[key] = t ^ layer["w2"].flatten(1)[:, k:k + 1]
        else:
            out[key] = spoil(t, k)
        return out
    return spoiled, what, why


def source_layer():
    layer = checkpoint_of(program.TINY, "vllm", "marlin").layers["model", 0]
    return {name: layer[key] for name, key in PARTS.items()}


def check_inside(call, folder, drivers):
    """Raises an exception unless the learned file packs as the conversion does, with each driver. Returns the last
    output."""
    path = os.path.join(folder, "made.json")
    with open(path, "w") as file:
        file.write(command.to_text("made", "vllm", learn(Probe(call, TINY), True), {}))
    want = {name: t.contiguous().view(torch.uint8).flatten() for name, t in call(source_layer()).items()}
    for driver in drivers:
        out, back = os.path.join(folder, driver), os.path.join(folder, driver + ".back")
        for arguments in (["convert", program.TINY, out, "--layout", path, "--no-loader", "-q"],
                          ["verify", out, "--source", program.TINY, "-q"], ["unpack", out, back, "-q"]):
            done = subprocess.run([program.PROGRAM, *arguments], capture_output=True, text=True,
                                  env=os.environ | {"MXFP4_PACK_DRIVER": driver, "MXFP4_PACK_DEVICE": "cpu"})
            if done.returncode:
                raise NoRearrangement(f"{driver}: {arguments[0]}: {done.stderr.strip()}")
        packed = tensors_of(os.path.join(out, "packed"))
        for name, bytes in want.items():
            if not torch.equal(packed["model.layers.0.mlp.experts." + name].view(torch.uint8).flatten(), bytes):
                raise NoRearrangement(f"{driver}: {name}: other bytes than the conversion's")
        for name in filter(lambda name: name.endswith(".safetensors"), os.listdir(program.TINY)):
            if not filecmp.cmp(os.path.join(program.TINY, name), os.path.join(back, name), shallow=False):
                raise NoRearrangement(f"{driver}: {name}: unpacked to other bytes")
    return out


def drivers_here():
    said = subprocess.run([program.PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    names = re.search(r"CPU drivers ([^;]*); here (\w+)", said)
    every = names.group(1).replace(",", " ").split()
    return every[every.index(names.group(2)):]


def refusal(call):
    try:
        learn(Probe(call, TINY), True)
    except NoRearrangement as e:
        return str(e)
    return None


def main():
    which, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    good = 0
    for seed in range(first, first + count):
        if which == "inside":
            call, what = inside(seed)
            try:
                with tempfile.TemporaryDirectory() as folder:
                    check_inside(call, folder, drivers_here())
                good += 1
            except NoRearrangement as e:
                print(f"{seed}: {e}\n    {what}", flush=True)
        else:
            call, what, why = outside(seed)
            said = refusal(call)
            good += bool(said and re.search(why, said))
            if not said or not re.search(why, said):
                print(f"{seed}: {what}: {said or 'accepted'}", flush=True)
    print(f"{good} of {count} {which} are right")
    return good != count


if __name__ == "__main__":
    sys.exit(main())
