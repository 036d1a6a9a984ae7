#!/usr/bin/env python3
"""verify --published: every backend's output is proved without its checkpoint, and no damaged one is.

usage: run.py MXFP4-PACK [--flips N] [--altered N] [--all] [--seed S]

1. GPT-OSS and DeepSeek-V4 structures at tp 1 and 2 are converted for Marlin, Triton, FlashInfer and by a layout file;
   with --all, for every backend that is not lossy. Each output must be right.
2. N bits are flipped, one at a time, in packed and copied tensors, headers, manifest and other files. None may be right.
3. N checkpoints with one flipped bit are converted. Their outputs are right by themselves; none may be as published.

The long form is: run.py build/mxfp4-pack --all --flips 1000 --altered 100
"""

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = ("gpt-oss-20b", "deepseek-v4-flash")
BACKENDS = (("marlin", "vllm"), ("triton-hopper", "vllm"), ("flashinfer-trtllm", "vllm"), ("flashinfer-cutlass", "vllm"))


class Proof:
    def __init__(self, program, work, rng):
        self.program, self.work, self.rng = program, work, rng
        self.failures = 0

    def run(self, *words):
        command = [self.program, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    def fail(self, text, done):
        self.failures += 1
        print(f"FAILED: {text}: exit {done.returncode}: {(done.stdout + done.stderr).strip()}")

    def prepare(self, model):
        checkpoint = self.work / model
        done = self.run("synth", model, checkpoint, "--tiny", "-q")
        if done.returncode:
            sys.exit(f"FAILED: cannot make {model}: {done.stderr}")
        sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(checkpoint.iterdir())]
        (self.work / f"{model}.sums").write_text("".join(sums))

    def convert(self, model, out, options):
        return self.run("convert", self.work / model, self.work / out, *options, "--no-loader", "--force", "-q")

    def prove(self, model, out):
        return self.run("verify", self.work / out, "--published", self.work / f"{model}.sums", "--threads", 1)

    def is_proved(self, done):
        return done.returncode == 0 and "as published in" in done.stdout

    def options(self, model, backend, tp):
        """By a backend (name, engine, layout version), or by a layout file that is made of Marlin."""
        if backend:
            name, engine, *version = backend
            return ["--backend", name, "--engine", engine, "--tp-size", tp, *(["--layout-version", *version] if version else [])]
        file = self.work / f"{model}-{tp}.json"
        made_of = ["--backend", "marlin", "--engine", "vllm", "--model", self.work / model, "--tp-size", tp]
        done = self.run("layout", file, *made_of)
        if done.returncode:
            sys.exit(f"FAILED: cannot make {file}: {done.stderr}")
        return ["--layout", file, "--tp-size", tp]

    def outputs(self, backends):
        """Those that could be made, each of which must be right: (model, output, options)."""
        made = []
        for model in MODELS:
            for backend in (*backends, None):
                for tp in (1, 2):
                    out = "-".join((model, *(backend or ("layout-file",)), f"tp{tp}"))
                    options = self.options(model, backend, tp)
                    done = self.convert(model, out, options)
                    if done.returncode:
                        if backends is not BACKENDS:
                            continue  # not for this model, or not at this size
                        self.fail(f"convert {out}", done)
                        continue
                    done = self.prove(model, out)
                    if "the backend is lossy" in done.stderr:
                        continue
                    if not self.is_proved(done):
                        self.fail(f"{out} is as published", done)
                    made.append((model, out, options))
        return made

    def flip(self, path, at):
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << self.rng.randrange(8)]))

    def places(self, out):
        """One place of each kind in an output: kind, file, byte."""
        files = sorted(p for p in (self.work / out).rglob("*") if p.is_file())
        tensors = [p for p in files if p.suffix == ".safetensors"]
        begin = {p: 8 + int.from_bytes(p.read_bytes()[:8], "little") for p in tensors}
        manifest = self.work / out / "mxfp4-pack.json"
        headers = tensors + [p for p in files if p.name == "source-headers"]
        packed = [p for p in tensors if p.parent.name == "packed" and not p.name.startswith("canary")]
        rest = [p for p in tensors if p.name.startswith("rest-")]

        def of(kind, candidates, first, end):
            path = self.rng.choice(candidates)
            return kind, path, self.rng.randrange(first(path), end(path))

        def size(path):
            return path.stat().st_size

        yield of("packed", packed, lambda p: begin[p], size)
        yield of("rest", rest, lambda p: begin[p], size)
        yield of("header", headers, lambda p: 0, lambda p: begin.get(p, size(p)))
        yield of("manifest", [manifest], lambda p: 0, size)
        yield of("file", [p for p in files if p not in packed + rest + [manifest]], lambda p: 0, size)

    def flips(self, made, count):
        by_kind = {}
        while sum(by_kind.values()) < count:
            model, out, _ = self.rng.choice(made)
            for kind, path, at in self.places(out):
                before = path.read_bytes()
                self.flip(path, at)
                done = self.prove(model, out)
                if done.returncode not in (1, 2) or "right" in done.stdout or "as published in" in done.stdout:
                    self.fail(f"a bit of byte {at} of {path.relative_to(self.work)} ({kind})", done)
                path.write_bytes(before)
                by_kind[kind] = by_kind.get(kind, 0) + 1
        for model, out in sorted({(m, o) for m, o, _ in made}):
            done = self.prove(model, out)
            if not self.is_proved(done):
                self.fail(f"{out} as before", done)
        return by_kind

    def altered(self, made, count):
        """How many checkpoints could be converted after one bit of a shard changed."""
        converted = 0
        while converted < count:
            model, _, options = self.rng.choice(made)
            shard = self.rng.choice(sorted((self.work / model).glob("*.safetensors")))
            before = shard.read_bytes()
            first = 8 + int.from_bytes(before[:8], "little")
            if first < len(before):
                self.flip(shard, self.rng.randrange(first, len(before)))
                if self.convert(model, "altered", options).returncode == 0:
                    converted += 1
                    done = self.prove(model, "altered")
                    if done.returncode != 1 or f"{shard.name}: restored, its SHA-256 is" not in done.stdout:
                        self.fail(f"{model} {' '.join(map(str, options))}: a changed bit of {shard.name}", done)
                shard.write_bytes(before)
                shutil.rmtree(self.work / "altered", ignore_errors=True)
        return converted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--flips", type=int, default=0)
    parser.add_argument("--altered", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        proof = Proof(str(Path(o.program).resolve()), Path(work), random.Random(o.seed))
        for model in MODELS:
            proof.prepare(model)
        backends = BACKENDS
        if o.all:
            listed = json.loads(proof.run("backends", "--json").stdout)["backends"]
            backends = sorted({(b["backend"], b["engine"], b["layout_version"]) for b in listed})
        made = proof.outputs(backends)
        print(f"outputs that must be as published: {len(made)}")
        by_kind = proof.flips(made, o.flips)
        print(f"flipped bits that must be found: {sum(by_kind.values())}, {by_kind}")
        print(f"altered checkpoints that must be found: {proof.altered(made, o.altered)}")
        print(f"failures: {proof.failures}")
        sys.exit(1 if proof.failures or not made else 0)


main()
