"""How long an installed vLLM or SGLang takes to load a checkpoint raw and packed, and what memory it needs.

    mxfp4-pack synth gpt-oss-20b R && mxfp4-pack convert R P --engine vllm --backend marlin
    python3 tests/bench/start_bench.py --raw R --packed P --backend marlin [--engine sglang] [--rounds 3]
        [--formats fastsafetensors,..] [--fallback Q] [--tp 2 [--ep]] [--cold] [--again] [--load-only]

The engine and src/loaders must be installed; --backend is the engine's own name of the kernel. Starts the original and
the packed checkpoint, each with the engine's own loader and with the --formats, one after the other. vLLM runs in a
process of its own that is forked after vLLM was imported. SGLang runs as sglang.Engine with a new scheduler. Both run
without CUDA graphs. The first round also generates text. It compares the experts' parameters (SGLang: all parameters
and buffers), tokens and log probabilities (vLLM: all, SGLang: the 1000 largest of each step) with those of the
original. The later rounds of vLLM end after load_model and use only the format that was fastest for the original.
--again starts both a second time in the first round: differences between the two starts of the original come from the
engine. --load-only compares parameters and generates nothing.

SGLang compiles kernels when they are first needed: the first load and the first answer on a machine are no measure.

Q is an output that does not fit this engine; it starts once, with MXFP4_PACK_FALLBACK=unpack. SGLang supports one
packed model in a process, so give --packed Q with the variable set. --cold drops the files from the page cache before
each start, and prints the time of reading them. Prints one line for each start, then a table of medians. Columns are
seconds of load_model and of its parts: building the model, the engine's weights, and the conversion or the rest of the
packed reads. The next column is the time of the packed layers from the first one's start to the last byte (the loader's
report). Last are peak GPU memory (the allocator's) and peak host memory (VmHWM). With several ranks, figures are the
largest. Exit code 0: parameters, tokens and log probabilities of all starts are equal.
"""

import argparse
import glob
import importlib
import json
import os
import queue
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

KEYS = ("load", "build", "weights", "convert", "packed", "gpu", "host")
COLUMNS = "load_model s | build | weights | conversion | packed layers | GPU GiB | host GiB"
PROMPT = [1000 + 37 * i for i in range(160)]  # DeepSeek-V4 compresses 128 tokens to one


def largest(seen):
    """Of each figure that the ranks saw; their experts one after the other."""
    found = {key: max((s[key] for s in seen if s[key] is not None), default=None) for key in seen[0]}
    return found | {"experts": [json.loads(e) for e in sorted(s["experts"] for s in seen)]}


def drop(directory):
    for path in glob.glob(os.path.join(directory, "**", "*.safetensors"), recursive=True):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_seconds(directory, threads=8, piece=16 << 20):
    """(seconds, bytes) of reading all tensor files, cold, into memory that is not kept."""
    drop(directory)
    paths = glob.glob(os.path.join(directory, "**", "*.safetensors"), recursive=True)
    pieces = queue.SimpleQueue()
    for path in paths:
        for offset in range(0, os.path.getsize(path), piece):
            pieces.put((path, offset))

    def work():
        buffer = bytearray(piece)
        while True:
            try:
                path, offset = pieces.get_nowait()
            except queue.Empty:
                return
            with open(path, "rb", buffering=0) as file:
                os.preadv(file.fileno(), [buffer], offset)

    begin = time.monotonic()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.monotonic() - begin, sum(map(os.path.getsize, paths))


def numbers(seen):
    return " ".join(f"{key} {seen[key]:.2f}" for key in KEYS if seen[key] is not None)


def other_names(one, raw):
    """Some of the parameters that differ, and how many."""
    names = sorted({name for own, other in zip(one["experts"], raw["experts"], strict=True)
                    for name in {*own, *other} if own.get(name) != other.get(name)})
    return [*names[:4], f"{len(names)} in all"]


def differences(one, raw):
    """The differences from the first start of the original; for log probabilities the first step that differs and the
    largest difference there."""
    found = [f"parameters ({', '.join(other_names(one, raw))})"] if one["experts"] != raw["experts"] else []
    found += ["tokens"] if one["tokens"] != raw["tokens"] else []
    for step, (own, other) in enumerate(zip(one["logprobs"], raw["logprobs"], strict=True)):
        if own != other:
            largest = max(abs(a - b) for a, b in zip(own, other, strict=True))
            return [*found, f"log probabilities from step {step} on, there by up to {largest:.2g}"]
    return found


class Bench:
    def __init__(self, options):
        self.options = options
        self.engine = importlib.import_module(f"start_{options.engine}")
        self.engine.prepare()
        self.seen, self.failed = {}, []

    def started(self, directory, format, environment, compare):
        """The observations of one start; None if it failed."""
        prompt = PROMPT if compare and not self.options.load_only else []
        seen, generated = self.engine.started(directory, self.options, format, environment, compare, prompt)
        if len(seen) < self.options.tp or (prompt and not generated):
            return None
        return largest(seen) | {"tokens": [], "logprobs": []} | generated

    def run(self, turn, way, directory, format="default", environment={}):
        if self.options.cold:
            seconds, size = read_seconds(directory)
            print(f"reading {directory} cold: {size / 1e9:.2f} GB in {seconds:.2f} s, {size / 1e9 / seconds:.2f} GB/s",
                  flush=True)
            drop(directory)
        one = self.started(directory, format, environment, turn == 0)
        if one is None:
            print(f"{turn} {way}: did not start", flush=True)
            self.failed.append(way)
            return
        self.seen.setdefault(way, []).append(one)
        raw = self.seen.get("raw", [one])[0]
        others = differences(one, raw) if turn == 0 else []
        print(f"{turn} {way}: {numbers(one)} {'; other ' + ', '.join(others) if others else ''} {one['report']}", flush=True)
        if others:
            self.failed.append(way)

    def round(self, turn, formats):
        for name in formats:
            suffix = "" if name == "default" else f", {name}"
            for which in ("raw", "packed"):
                self.run(turn, which + suffix, getattr(self.options, which), name)
        if turn == 0 and self.options.again:
            self.run(turn, "raw again", self.options.raw)
            self.run(turn, "packed again", self.options.packed)
        if turn == 0 and self.options.fallback:
            self.run(turn, "fallback", self.options.fallback, environment={"MXFP4_PACK_FALLBACK": "unpack"})

    def fastest(self, formats):
        ran = {name: self.seen[f"raw, {name}"][0]["load"] for name in formats if f"raw, {name}" in self.seen}
        return [min(ran, key=ran.get)] if ran else []

    def table(self):
        print(f"| | {COLUMNS} |\n|{'---|' * (len(KEYS) + 1)}")
        for way, ones in self.seen.items():
            columns = [[one[key] for one in ones if one[key] is not None] for key in KEYS]
            print(f"| {way} | " + " | ".join(f"{statistics.median(c):.2f}" if c else "" for c in columns) + " |")
        compared = "parameters" if self.options.load_only else "parameters, tokens and log probabilities"
        print(f"did not start, or other {compared} than raw: {', '.join(self.failed)}" if self.failed else
              f"{compared} of all are equal")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=("vllm", "sglang"), default="vllm")
    parser.add_argument("--raw", required=True)
    parser.add_argument("--packed", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--formats", default="", help="'8 threads', fastsafetensors, instanttensor, runai_streamer")
    parser.add_argument("--fallback")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--ep", action="store_true")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--load-only", action="store_true")
    options = parser.parse_args()
    if options.engine == "sglang" and options.fallback:
        parser.error("SGLang knows one packed model in a process: --packed Q with MXFP4_PACK_FALLBACK=unpack set")
    bench = Bench(options)
    formats = [name for name in options.formats.split(",") if name]
    for turn in range(options.rounds):
        bench.round(turn, ["default", *(formats if turn == 0 else bench.fastest(formats))])
    bench.table()
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
