"""`python3 -m mxfp4_pack.check OUT --source CKPT` with an installed vLLM on a GPU: right where OUT is right, and three
mistakes that the engine's own kernel must show.

    MXFP4_PACK_LIBRARY=build/libmxfp4_pack.so PYTHONPATH=src/loaders PATH=build:$PATH python3 tests/engines/check_real.py
        [--backends marlin,triton-hopper] [--models gpt-oss-20b,deepseek-v4-flash] [--dir DIR]

vLLM 0.21 to 0.33, the program on the PATH, 8 GB of room in DIR. Exit code 0: all as it must be.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

from mxfp4_pack import Manifest
from mxfp4_pack._safetensors import read_header

# the options of a model's synth, the layout version of vLLM 0.26.0's own bytes by backend
MODELS = {"gpt-oss-20b": ["--layers", "1", "--vocab", "1024"],
          "deepseek-v4-flash": ["--layers", "1", "--experts", "32", "--vocab", "1024"]}
VERSIONS = {"marlin": "1", "triton-hopper": "a", "flashinfer-cutlass": "v1"}


def run(*command):
    subprocess.run(command, check=True)


def place(out, parameter):
    """(file, first byte, bytes of an expert) of a parameter of the first layer."""
    packed = Manifest(out, json.load(open(os.path.join(out, "mxfp4-pack.json")))["sets"][0]["engine"])
    set_ = packed.opened(packed.sets[0], 0)
    entry = next(e for e in next(iter(set_.layers.values())).values() if e.parameter == parameter)
    path = os.path.join(out, entry.file)
    return path, read_header(path)[0][entry.name].begin, entry.bytes // entry.experts


def rewrite(out, parameter, change, experts=2):
    """change(bytes of the first experts) -> bytes"""
    path, begin, size = place(out, parameter)
    with open(path, "r+b") as file:
        file.seek(begin)
        data = change(file.read(experts * size))
        file.seek(begin)
        file.write(data)


def swapped(out, other):
    size = place(out, "w2_weight")[2]
    rewrite(out, "w2_weight", lambda data: data[size:] + data[:size])


def scale(out, other):
    rewrite(out, "w2_weight_scale", lambda data: bytes(min(b + 1, 254) for b in data))


def layout(out, other):
    """The first experts' w13 as SGLang's converter makes them: rows in halves, not in pairs, or otherwise padded."""
    path, begin, size = place(other, "w13_weight")
    with open(path, "rb") as file:
        file.seek(begin)
        data = file.read(2 * size)
    rewrite(out, "w13_weight", lambda old: data[:len(old)])


def check(out, source):
    done = subprocess.run([sys.executable, "-m", "mxfp4_pack.check", out, "--source", source, "--engine", "vllm", "--json"],
                          stdout=subprocess.PIPE, text=True)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"no JSON, exit code {done.returncode}: {done.stdout[:2000]}") from None
    return done.returncode, report["sets"][0]["kernel"], report


def must(what, holds, seen):
    print(f"{'ok' if holds else 'FAILED'}: {what}: {seen}", flush=True)
    return holds


def one(directory, model, options, backend):
    source, out, other = (os.path.join(directory, name) for name in ("source", "out", "other"))
    run("mxfp4-pack", "synth", model, source, *options, "-q")
    convert = ["mxfp4-pack", "convert", source, "-q", "--backend", backend]
    run(*convert, out, "--engine", "vllm", "--layout-version", VERSIONS[backend])
    code, kernel, report = check(out, source)
    good = must(f"{model} {backend} is right", code == 0 and (kernel or "").startswith("right"), (code, kernel, report))
    mistakes = [swapped, scale]
    if backend == "marlin" and model == "gpt-oss-20b":  # the same shapes
        run(*convert, other, "--engine", "sglang")
        mistakes.append(layout)
    for mistake in mistakes:
        shutil.rmtree(out)
        run(*convert, out, "--engine", "vllm", "--layout-version", VERSIONS[backend])
        mistake(out, other)
        code, kernel, _ = check(out, source)
        good &= must(f"{model} {backend}, mistake: {mistake.__name__}", code == 1 and (kernel or "").startswith("wrong"),
                     (code, kernel))
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="marlin,triton-hopper")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    good = True
    for backend in options.backends.split(","):
        for model in options.models.split(","):
            with tempfile.TemporaryDirectory(dir=options.dir) as directory:
                good &= one(directory, model, MODELS[model], backend)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
