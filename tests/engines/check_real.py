"""Tests `python3 -m mxfp4_pack.check OUT --source CKPT` with an installed vLLM on a GPU.

OUT is correct, or has one of three mistakes that the engine's own kernel must reveal. Outputs with mistakes get the
checksums of the wrong bytes.

    MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders PATH=build:$PATH python3 tests/engines/check_real.py
        [--backends marlin,triton-hopper] [--models gpt-oss-20b,deepseek-v4-flash] [--dir DIR] [--at-once N]

Needs vLLM 0.21 to 0.33, the program in PATH and 8 GB of free space in DIR. The first check runs in a process of
its own, as a user would call it. The others are forked after vLLM was imported, N at a time. Exit code 0: all checks
passed.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from typing import NamedTuple

from mxfp4_pack import Manifest
from mxfp4_pack._safetensors import read_header
from mxfp4_pack._xxh3 import hexdigest

# the options of a model's synth, the layout version of vLLM 0.26.0's own bytes by backend
MODELS = {"gpt-oss-20b": ["--layers", "1", "--vocab", "1024"],
          "deepseek-v4-flash": ["--layers", "1", "--experts", "32", "--vocab", "1024"]}
VERSIONS = {"marlin": "1", "triton-hopper": "a", "flashinfer-cutlass": "v1"}


OTHER = {"marlin": ("--engine", "sglang")}


def run(*command):
    subprocess.run(command, check=True)


class Place(NamedTuple):
    """Of a parameter of the first layer."""
    file: str
    begin: int
    bytes: int
    experts: int
    checksum: str

    def read(self):
        with open(self.file, "rb") as file:
            file.seek(self.begin)
            return file.read(self.bytes)


def place(out, parameter):
    packed = Manifest(out, json.load(open(os.path.join(out, "mxfp4-pack.json")))["sets"][0]["engine"])
    set_ = packed.opened(packed.sets[0], 0)
    entry = next(e for e in next(iter(set_.layers.values())).values() if e.parameter == parameter)
    path = os.path.join(out, entry.file)
    return Place(path, read_header(path)[0][entry.name].begin, entry.bytes, entry.experts, entry.xxh3_128)


def rewrite(out, parameter, change):
    """change(bytes, bytes of an expert) -> bytes, of the same length. The manifest gets their checksum, and its own."""
    at = place(out, parameter)
    size = at.bytes // at.experts
    data = change(at.read(), size)
    with open(at.file, "r+b") as file:
        file.seek(at.begin)
        file.write(data)
    experts = (hexdigest(data[i * size:(i + 1) * size]) for i in range(at.experts))
    seal(out, at.checksum, hexdigest(bytes.fromhex("".join(experts))))


def seal(out, before, after):
    path, table = (os.path.join(out, name) for name in ("mxfp4-pack.json", "packed/tensors-0.jsonl"))
    with open(path) as file, open(table) as lines:
        manifest, text = json.load(file), lines.read()
    assert before in text
    text = text.replace(before, after)
    with open(table, "w") as file:
        file.write(text)
    listed = next(f for f in manifest["files"] if f["name"] == "packed/tensors-0.jsonl")
    listed["xxh3_128"] = hexdigest(text.encode())
    text = json.dumps(manifest | {"xxh3_128": "0" * 32}, indent=1, ensure_ascii=False) + "\n"
    with open(path, "w") as file:
        file.write(text.replace("0" * 32, hexdigest(text.encode()), 1))


def swapped(out, other):
    for parameter in ("w2_weight", "w2_weight_scale"):
        rewrite(out, parameter, lambda data, size: data[size:2 * size] + data[:size] + data[2 * size:])


def scale(out, other):
    rewrite(out, "w2_weight_scale", lambda data, size: bytes(min(b + 1, 254) for b in data[:2 * size]) + data[2 * size:])


def layout(out, other):
    """Marlin's w13 as SGLang's converter makes it: rows in halves, not in pairs. Triton's scales for four warps."""
    parameters = ("w13_weight_scale", "w2_weight_scale") if "triton" in other else ("w13_weight",)
    for parameter in parameters:
        theirs = place(other, parameter).read()
        rewrite(out, parameter, lambda data, size: (theirs + data[len(theirs):])[:len(data)])


class Case(NamedTuple):
    what: str
    out: str
    source: str
    wrong: bool

    said = property(lambda self: f"{self.out}.json")

    def command(self):
        return "-m", "mxfp4_pack.check", self.out, "--source", self.source, "--engine", "vllm", "--json"

    def run(self):
        with open(self.said, "w") as file:
            subprocess.run([sys.executable, *self.command()], stdout=file)

    def fork(self):
        process = multiprocessing.get_context("fork").Process(target=forked, args=(self.command()[2:], self.said))
        process.start()
        return process

    def holds(self):
        with open(self.said) as file:
            said = file.read()
        try:
            report = json.loads(said)
            code, kernel = report["exit_code"], report["sets"][0]["kernel"] or ""
        except (ValueError, LookupError, TypeError):
            code, kernel, report = None, "", f"no report: {said[:2000]}"
        holds = code == 1 and kernel.startswith("wrong") if self.wrong else code == 0 and kernel.startswith("right")
        print(f"{'ok' if holds else 'FAILED'}: {self.what}: {(code, kernel) if holds else report}", flush=True)
        return holds


def forked(arguments, path):
    """Runs the command in this process, with its output in a file."""
    from mxfp4_pack import check
    with open(path, "w") as file, redirect_stdout(file):
        check.main(list(arguments))


def cases(directory, model, options, backend):
    """The outputs, all made."""
    at = os.path.join(directory, f"{model}-{backend}")
    source, other = f"{at}-source", f"{at}-other"
    run("mxfp4-pack", "synth", model, source, *options, "-q")
    convert = ["mxfp4-pack", "convert", source, "-q", "--backend", backend]
    mistakes = [None, swapped, scale]
    if model == "gpt-oss-20b" and backend in OTHER:  # the same shapes
        run(*convert, other, *OTHER[backend])
        mistakes.append(layout)
    for mistake in mistakes:
        name = mistake.__name__ if mistake else "right"
        run(*convert, f"{at}-{name}", "--engine", "vllm", "--layout-version", VERSIONS[backend])
        if mistake:
            mistake(f"{at}-{name}", other)
        yield Case(f"{model} {backend}, {f'mistake: {name}' if mistake else name}", f"{at}-{name}", source, bool(mistake))


def import_engine():
    """Before processes fork. Nothing of it may ask for a GPU."""
    import mxfp4_pack.vllm.canary  # noqa: F401
    import mxfp4_pack.vllm.kernel  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="marlin,triton-hopper")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--dir", default=None)
    parser.add_argument("--at-once", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        all_ = [case for backend in options.backends.split(",") for model in options.models.split(",")
                for case in cases(directory, model, MODELS[model], backend)]
        all_[0].run()
        good = [all_[0].holds()]
        import_engine()
        for i in range(1, len(all_), options.at_once):
            some = all_[i:i + options.at_once]
            for process in [case.fork() for case in some]:
                process.join()
            good += [case.holds() for case in some]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
