"""How long an installed vLLM takes to load a checkpoint raw and packed, and what memory it needs.

    mxfp4-pack synth gpt-oss-20b R && mxfp4-pack convert R P --engine vllm --backend marlin
    python3 tests/bench/start_bench.py --raw R --packed P --backend marlin [--rounds 3] [--formats fastsafetensors,..]
        [--fallback Q] [--tp 2 [--ep]] [--cold] [--again]

vLLM and src/loaders must be installed. Starts raw and packed, each with vLLM's own loader and with the --formats, one
after the other, each in a process of its own that is forked after vLLM was imported: an engine without CUDA graphs, whose
model runner loads the model. The first round generates too, and compares the experts' parameters, tokens and all log
probabilities with raw's; the later rounds end after load_model, and of the formats run only that which was the fastest raw.
--again starts raw and packed a second time in the first round: what raw does not repeat is the engine's own.

Q does not fit this vLLM: it starts with MXFP4_PACK_FALLBACK=unpack, once. --cold drops the files from the page cache before
each start, and says what reading them takes. One line for each start, then a table of medians: seconds of load_model, of
which building the model, the engine's weights, the conversion or what is left of the packed reads, and, beside these, the
packed layers from the first one's start to the last byte (the loader's report); peak GPU memory (the allocator's), peak
host memory (VmHWM). Of several ranks the largest. Exit code 0: experts, tokens and log probabilities of all are equal.
"""

import argparse
import glob
import json
import logging
import multiprocessing
import os
import queue
import re
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from vllm_experts import experts_of  # noqa: E402

THREADS = {"enable_multithread_load": True, "num_threads": 8}
KEYS = ("load", "build", "weights", "convert", "packed", "gpu", "host")
COLUMNS = "load_model s | build | weights | conversion | packed layers | GPU GiB | host GiB"


def format_options(name):
    if name == "default":
        return {}
    return {"model_loader_extra_config": THREADS} if name == "8 threads" else {"load_format": name}


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def host_peak_gib():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\s*(\d+)", file.read()).group(1)) / 2**20


def logprobs_of(step):
    """Of all tokens, in the order of their numbers."""
    return [p.logprob for _, p in sorted(step.items())]


def timed(seen, key, function):
    def run(*args, **kwargs):
        import torch
        begin = time.monotonic()
        result = function(*args, **kwargs)
        torch.cuda.synchronize()
        seen[key] = time.monotonic() - begin
        return result
    return run


def measure_loads(path, generate):
    """Every process that loads a model appends what it saw to the file, as a line of JSON."""
    from vllm.model_executor.model_loader import base_loader
    seen, lines = {}, Lines()
    for name in ("vllm", "mxfp4_pack"):
        logging.getLogger(name).addHandler(lines)
    base_loader.initialize_model = timed(seen, "build", base_loader.initialize_model)
    base_loader.process_weights_after_loading = timed(seen, "convert", base_loader.process_weights_after_loading)
    load_model = timed(seen, "load", base_loader.BaseModelLoader.load_model)

    def measured(*args, **kwargs):
        import torch
        model = load_model(*args, **kwargs)
        seen["weights"] = seen["load"] - seen["build"] - seen["convert"]
        seen["gpu"], seen["host"] = torch.cuda.max_memory_allocated() / 2**30, host_peak_gib()
        seen["report"] = next((line for line in lines.lines if line.startswith("mxfp4-pack:")), "")
        found = re.search(r" GB in ([\d.]+) s", seen["report"])
        seen["packed"] = float(found.group(1)) if found else None
        seen["experts"] = json.dumps(experts_of(model)) if generate else ""
        with open(path, "a") as file:
            file.write(json.dumps(seen) + "\n")
        return model

    base_loader.BaseModelLoader.load_model = measured


def start(directory, options, generate, result):
    from vllm import LLM, SamplingParams
    llm = LLM(model=directory, skip_tokenizer_init=True, enforce_eager=True, max_model_len=256, max_logprobs=-1,
              gpu_memory_utilization=0.5, attention_backend="TRITON_ATTN", generation_config="vllm", seed=0,
              max_num_batched_tokens=256, max_num_seqs=4, **options)
    if not generate:
        return
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=-1, ignore_eos=True, detokenize=False)
    out = llm.generate([{"prompt_token_ids": [1000 + 37 * i for i in range(32)]}], sampling)[0].outputs[0]
    result.put({"tokens": list(out.token_ids), "logprobs": [logprobs_of(step) for step in out.logprobs]})


def child(directory, options, environment, generate, path, result):
    os.environ |= environment
    measure_loads(path, generate)
    start(directory, options, generate, result)


def ranks_in(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def started(directory, options, environment, generate, ranks):
    """What was seen of one start, the largest of its ranks; None where it failed."""
    context = multiprocessing.get_context("fork")
    result = context.Queue()
    with tempfile.NamedTemporaryFile() as file:
        process = context.Process(target=child, args=(directory, options, environment, generate, file.name, result))
        process.start()
        while process.is_alive() and result.empty() and (generate or len(ranks_in(file.name)) < ranks):
            time.sleep(0.05)
        seen = ranks_in(file.name)
        generated = result.get(timeout=5) if not result.empty() else {}
        stop(process)
    if len(seen) < ranks or (generate and not generated):
        return None
    largest = {key: max((s[key] for s in seen if s[key] is not None), default=None) for key in seen[0]}
    return largest | generated | {"experts": sorted(s["experts"] for s in seen)}


def stop(process):
    """Ends it and the ranks that it started."""
    import psutil
    processes = []
    with suppress(psutil.NoSuchProcess):
        processes = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.join()
    for rank in processes:
        with suppress(psutil.NoSuchProcess):
            rank.kill()
    psutil.wait_procs(processes)


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


def differences(one, raw):
    """What is not as in the first raw start; of log probabilities the first step that differs and the largest difference
    there."""
    found = [key for key in ("experts", "tokens") if one[key] != raw[key]]
    for step, (own, other) in enumerate(zip(one["logprobs"], raw["logprobs"], strict=True)):
        if own != other:
            largest = max(abs(a - b) for a, b in zip(own, other, strict=True))
            return [*found, f"log probabilities from step {step} on, there by up to {largest:.2g}"]
    return found


class Bench:
    def __init__(self, options):
        self.options = options
        self.seen, self.failed = {}, []
        self.engine = {"moe_backend": options.backend, "tensor_parallel_size": options.tp}
        if options.tp > 1:
            self.engine |= {"enable_expert_parallel": options.ep, "disable_custom_all_reduce": True}

    def run(self, turn, way, directory, extra, environment={}):
        if self.options.cold:
            seconds, size = read_seconds(directory)
            print(f"reading {directory} cold: {size / 1e9:.2f} GB in {seconds:.2f} s, {size / 1e9 / seconds:.2f} GB/s",
                  flush=True)
            drop(directory)
        one = started(directory, self.engine | extra, environment, turn == 0, self.options.tp)
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
                self.run(turn, which + suffix, getattr(self.options, which), format_options(name))
        if turn == 0 and self.options.again:
            self.run(turn, "raw again", self.options.raw, {})
            self.run(turn, "packed again", self.options.packed, {})
        if turn == 0 and self.options.fallback:
            self.run(turn, "fallback", self.options.fallback, {}, {"MXFP4_PACK_FALLBACK": "unpack"})

    def fastest(self, formats):
        ran = {name: self.seen[f"raw, {name}"][0]["load"] for name in formats if f"raw, {name}" in self.seen}
        return [min(ran, key=ran.get)] if ran else []

    def table(self):
        print(f"| | {COLUMNS} |\n|{'---|' * (len(KEYS) + 1)}")
        for way, ones in self.seen.items():
            columns = [[one[key] for one in ones if one[key] is not None] for key in KEYS]
            print(f"| {way} | " + " | ".join(f"{statistics.median(c):.2f}" if c else "" for c in columns) + " |")
        print(f"did not start, or other expert parameters, tokens or log probabilities than raw: {', '.join(self.failed)}"
              if self.failed else "expert parameters, tokens and log probabilities of all are equal")


def main():
    parser = argparse.ArgumentParser()
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
    options = parser.parse_args()
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    import vllm.entrypoints.llm  # noqa: F401  before the processes fork: its seconds are not measured
    import vllm.model_executor.models.gpt_oss  # noqa: F401
    import vllm.v1.worker.gpu_worker  # noqa: F401
    bench = Bench(options)
    formats = [name for name in options.formats.split(",") if name]
    for turn in range(options.rounds):
        bench.round(turn, ["default", *(formats if turn == 0 else bench.fastest(formats))])
    bench.table()
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
