"""Learns the layout that a conversion makes, and writes it as a layout file for `mxfp4-pack convert --layout FILE`.

    python3 -m mxfp4_pack.learn --call module:function --hidden 2880 --intermediate 2880 --bias --pairs \\
        --name mykernel -o mykernel.json

The function gets a dict of tensors as a checkpoint has them, all experts, and returns a dict of what is to be stored,
under the engine's names, experts outermost (see learn/probe.py). It is asked where every bit goes, and the answer is
proved on random layers. Where it does more than move bits, that is said and nothing is written.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch

from .._program import program
from . import NoRearrangement
from .fit import Fitting, places
from .probe import PARTS, Probe, Size

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
        """The bytes of one expert, [rows, ..] of the checkpoint's elements."""
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
        grid[to, self.real[1]:self.row_bytes] = self.pad[1]
        grid[to, :self.real[1]] = source + numpy.uint8(self.map.add) if self.part == "scales" else source
        at = places(fit.modes)
        return numpy.packbits(numpy.unpackbits(grid, axis=1, bitorder="little")[at[:, 0], at[:, 1]], bitorder="little")


def learn(call, size, pairs):
    """The stored tensors of a conversion, with their fits."""
    probe = Probe(call, size)
    before, made_of = probe.sources()
    tensors, like = [], ((int(pairs), False), 0.5)  # the rows as they were given
    for name, key in sorted((n, k) for k, n in made_of.items()):  # w13's codes first
        print(f"{key}: made of {name}, {before[key].data.shape[1]} bytes of each expert", file=sys.stderr)
        tensors.append(Tensor(key, name, before[key], probe.map(key, name, before[key]), size, pairs, like))
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
        made = probe.run(layer)
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


def function_of(text):
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise NoRearrangement(f"--call {text}: {e}") from e


def called(function):
    """The function, whose own failures are its refusals too."""
    def call(tensors):
        try:
            made = function(tensors)
        except (Exception, SystemExit) as e:
            raise NoRearrangement(f"the conversion raised {type(e).__name__}: {e}") from e
        if not isinstance(made, dict):
            raise NoRearrangement(f"the conversion returned {type(made).__name__}, a dict of tensors was expected")
        return made
    return call


def refusal_of(text, file):
    """Why mxfp4-pack does not take a layout file, where the program is there to be asked; else None."""
    if (path := program()) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        trial = os.path.join(folder, os.path.basename(file))
        with open(trial, "x") as f:
            f.write(text)
        done = subprocess.run([path, "layout", trial, "-q"], capture_output=True, text=True)
    said = done.stderr.replace(folder + os.sep, "").strip()
    return said.removeprefix("mxfp4-pack: error: ") if done.returncode else None


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m mxfp4_pack.learn", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--call", required=True, metavar="MODULE:FUNCTION", help="the conversion")
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--intermediate", type=int, required=True, help="of one tensor-parallel rank")
    parser.add_argument("--bias", action="store_true", help="layers have biases")
    parser.add_argument("--pairs", action="store_true",
                        help="rows of w13 are given as gate, up, gate, up .., as GPT-OSS has them; else all of gate first")
    parser.add_argument("--name", required=True, help="of the kernel, as the output will call it")
    parser.add_argument("--engine", default="none", help="that will load the output (default: none)")
    parser.add_argument("--made-with", action="append", default=[], metavar="LIBRARY=VERSION", help="what the function is of")
    parser.add_argument("-o", dest="file", required=True, metavar="FILE", help="layout file to make")
    o = parser.parse_args(arguments)
    if o.hidden % 32 or o.intermediate % 32 or o.hidden < 32 or o.intermediate < 32:
        parser.error("--hidden and --intermediate are multiples of 32")
    if os.path.lexists(o.file):
        parser.error(f"{o.file}: exists; a new file is made")
    size = Size(o.hidden, o.intermediate, o.bias)
    made_with = {"torch": torch.__version__} | dict(text.partition("=")[::2] for text in o.made_with)
    try:
        padded, tensors = learn(called(function_of(o.call)), size, o.pairs)
        text = to_text(o.name, o.engine, size, padded, made_with, tensors)
        if why := refusal_of(text, o.file):
            raise NoRearrangement(why)
    except NoRearrangement as e:
        print(f"mxfp4_pack.learn: error: {e}", file=sys.stderr)
        return 2
    for t in tensors:
        if t.map.free.any():
            print(f"{t.key}: {t.map.free.sum()} bytes of each expert are not written; they are pads here", file=sys.stderr)
    try:
        with open(o.file, "x") as file:
            file.write(text)
    except OSError as e:
        print(f"mxfp4_pack.learn: error: {e.filename}: {e.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
