"""How long an installed vLLM takes to load a checkpoint raw and packed, and what memory it needs.

    mxfp4-pack synth gpt-oss-20b R && mxfp4-pack convert R P --engine vllm --backend marlin
    python3 tests/bench/start_bench.py --raw R --packed P --backend marlin [--rounds 3]

vLLM and src/loaders must be installed. Starts raw, raw with vLLM's loader of several threads, and packed one after the
other, `rounds` times, each in a process of its own that is forked after vLLM was imported: an engine without CUDA graphs,
whose model runner loads the model; the first round generates too, and compares tokens and all log probabilities with
raw's. One line for each start, then a table of medians: seconds of load_model, of which the engine's weights (vLLM's own
log) and packed layers (the loader's report), peak GPU memory (the allocator's), peak host memory (VmHWM). Exit code 0:
tokens and log probabilities of all are equal.
"""

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import re
import statistics
import sys
import time

THREADS = {"enable_multithread_load": True, "num_threads": 8}
WAYS = {"raw": ("raw", {}), "raw, 8 threads": ("raw", THREADS), "packed": ("packed", {}),
        "packed, 8 threads": ("packed", THREADS)}


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def number(self, pattern):
        found = [m for line in self.lines if (m := re.search(pattern, line))]
        return float(found[-1].group(1)) if found else None


def host_peak_gib():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\s*(\d+)", file.read()).group(1)) / 2**20


def digest_of(step):
    return hashlib.sha256(json.dumps(sorted((t, p.logprob.hex()) for t, p in step.items())).encode()).hexdigest()


def start(directory, backend, extra, generate, result):
    import torch
    from vllm import LLM, SamplingParams
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    seen = {}
    lines = Lines()
    for name in ("vllm", "mxfp4_pack"):
        logging.getLogger(name).addHandler(lines)
    load_model = BaseModelLoader.load_model

    def measured(*args, **kwargs):
        begin = time.monotonic()
        model = load_model(*args, **kwargs)
        torch.cuda.synchronize()
        seen["load"] = time.monotonic() - begin
        seen["gpu"] = torch.cuda.max_memory_allocated() / 2**30
        seen["host"] = host_peak_gib()
        return model

    BaseModelLoader.load_model = measured
    begin = time.monotonic()
    llm = LLM(model=directory, skip_tokenizer_init=True, enforce_eager=True, max_model_len=256, max_logprobs=-1,
              gpu_memory_utilization=0.5, moe_backend=backend, attention_backend="TRITON_ATTN", generation_config="vllm",
              seed=0, max_num_batched_tokens=256, max_num_seqs=4, model_loader_extra_config=extra)
    seen["engine"] = time.monotonic() - begin
    seen["weights"] = lines.number(r"Loading weights took ([\d.]+)")
    seen["packed"] = lines.number(r"mxfp4-pack: .* GB in ([\d.]+) s")
    seen["report"] = next((line for line in lines.lines if line.startswith("mxfp4-pack:")), "")
    if generate:
        sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=-1, ignore_eos=True, detokenize=False)
        out = llm.generate([{"prompt_token_ids": [1000 + 37 * i for i in range(32)]}], sampling)[0].outputs[0]
        seen["tokens"] = list(out.token_ids)
        seen["logprobs"] = [digest_of(step) for step in out.logprobs]
    result.put(seen)


def started(*arguments):
    context = multiprocessing.get_context("fork")
    result = context.Queue()
    process = context.Process(target=start, args=(*arguments, result))
    process.start()
    while process.is_alive() and result.empty():
        time.sleep(0.05)
    seen = result.get(timeout=5) if not result.empty() else None
    process.join(30)
    process.kill()
    return seen


def numbers(seen):
    keys = ("load", "weights", "packed", "gpu", "host", "engine")
    return " ".join(f"{key} {seen[key]:.2f}" for key in keys if seen[key] is not None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--raw", required=True)
    parser.add_argument("--packed", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    import vllm.entrypoints.llm  # noqa: F401  before the processes fork: its seconds are not measured
    import vllm.model_executor.models.gpt_oss  # noqa: F401
    import vllm.v1.worker.gpu_worker  # noqa: F401
    seen = {way: [] for way in WAYS}
    different = []
    for turn in range(options.rounds):
        for way, (which, extra) in WAYS.items():
            one = started(getattr(options, which), options.backend, extra, turn == 0)
            if one is None:
                print(f"{way}: did not start", flush=True)
                different.append(way)
                continue
            seen[way].append(one)
            print(f"{turn} {way}: {numbers(one)} {one['report']}", flush=True)
            if turn == 0 and any(one[key] != seen["raw"][0][key] for key in ("tokens", "logprobs")):
                different.append(way)
    print("| | load_model s | of it weights | packed layers | GPU GiB | host GiB |\n|---|---|---|---|---|---|")
    for way, ones in seen.items():
        columns = [[one[key] for one in ones if one[key] is not None] for key in ("load", "weights", "packed", "gpu", "host")]
        print(f"| {way} | " + " | ".join(f"{statistics.median(c):.2f}" if c else "" for c in columns) + " |")
    print(f"other tokens or log probabilities than raw: {', '.join(different)}" if different else
          "tokens and log probabilities of all are equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
