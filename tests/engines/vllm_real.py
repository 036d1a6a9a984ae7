"""Compares original and packed checkpoint in an installed vLLM on a GPU: equal parameters, equal logprobs, and working
refusals.

    mxfp4-pack synth gpt-oss-20b R --layers 2
    mxfp4-pack convert R P --engine vllm --backend marlin
    python3 tests/engines/vllm_real.py R P marlin        (triton, flashinfer_cutlass)

For Triton, P with --layout-version a, the bytes of vLLM 0.26.0. --larger Q: also start Q, an output with more padding
in storage (the default layout version), whose logprobs must be equal. --quick: skip the starts that must differ.

vLLM and src/loaders must be installed. Prints load seconds and peak memory of both. Without
logprobs for flashinfer_cutlass, whose first generation has a race: there parameters alone are compared. Exit code 0:
all as it must be.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from vllm_experts import experts_of  # noqa: E402

ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}


def one_start(directory, backend, result):
    """Runs in a process of its own: loads, inspects and generates, and writes the observations to the file `result` as
    JSON."""
    import torch
    from vllm import LLM, SamplingParams
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    seen = {}
    load_model = BaseModelLoader.load_model

    def measured(*args, **kwargs):
        begin = time.monotonic()
        try:
            return load_model(*args, **kwargs)
        finally:
            torch.cuda.synchronize()
            seen["load_s"] = time.monotonic() - begin
            seen["gpu_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
            seen["host_peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    BaseModelLoader.load_model = measured
    llm = LLM(model=directory, skip_tokenizer_init=True, enforce_eager=True, max_model_len=256, max_logprobs=-1,
              gpu_memory_utilization=0.3, moe_backend=backend, attention_backend="TRITON_ATTN",
              generation_config="vllm", seed=0,
              max_num_batched_tokens=256, max_num_seqs=4)
    seen["experts"] = llm.apply_model(experts_of)[0]
    if backend != "flashinfer_cutlass":
        sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=-1, ignore_eos=True, detokenize=False)
        out = llm.generate([{"prompt_token_ids": [1000 + 37 * i for i in range(32)]}], sampling)[0].outputs[0]
        seen["tokens"] = list(out.token_ids)
        seen["logprobs"] = [hashlib.sha256(json.dumps(sorted((t, p.logprob.hex()) for t, p in step.items())).encode())
                            .hexdigest() for step in out.logprobs]
    with open(result, "w") as file:
        json.dump(seen, file)


def start(directory, backend, **environment):
    """(the observations of one_start, or None if it failed; its output)"""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        done = subprocess.run([sys.executable, os.path.abspath(__file__), directory, result.name, backend, "--one"],
                              env=os.environ | ENVIRONMENT | environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        return (json.load(result) if done.returncode == 0 else None), done.stdout


def with_flipped_byte(packed, parent, file, tensor):
    """A copy of the packed directory (hard links but for one file) with one bit of one tensor changed."""
    copy = os.path.join(parent, tensor.replace(".", "_"))
    shutil.copytree(packed, copy, copy_function=os.link)
    path = os.path.join(copy, file)
    os.remove(path)
    shutil.copyfile(os.path.join(packed, file), path)
    with open(path, "r+b") as f:
        length = int.from_bytes(f.read(8), "little")
        begin = json.loads(f.read(length))[tensor]["data_offsets"][0]
        f.seek(8 + length + begin)
        byte = f.read(1)[0]
        f.seek(8 + length + begin)
        f.write(bytes([byte ^ 1]))
    return copy


def compare(raw, packed, backend, larger, quick):
    failures = []

    def expect(right, what):
        print(f"{'ok  ' if right else 'FAIL'} {what}", flush=True)
        if not right:
            failures.append(what)

    def log(name, output):
        print(f"--- {name}: its last lines\n{os.linesep.join(output.splitlines()[-40:])}\n---", flush=True)

    seen = {}
    for name, directory in {"raw": raw, "packed": packed, "larger": larger}.items():
        if directory is None:
            continue
        begin = time.monotonic()
        seen[name], output = start(directory, backend)
        expect(seen[name] is not None, f"{name} starts")
        if seen[name] is None:
            log(name, output)
            return failures
        s = seen[name]
        print(f"     {name}: {time.monotonic() - begin:.0f} s in all, load {s['load_s']:.2f} s, peak GPU memory "
              f"{s['gpu_peak_gib']:.2f} GiB, peak host memory {s['host_peak_gib']:.2f} GiB, "
              f"tokens {s.get('tokens')}", flush=True)
    experts = seen["raw"]["experts"]
    expect(len(experts) > 0, f"{len(experts)} expert tensors and backends were looked at")
    expect(seen["packed"]["experts"] == experts, "expert parameters are equal: dtype, shape, strides, bytes")
    for key in ("tokens", "logprobs"):
        for name in [name for name in seen if name != "raw"]:
            expect(seen[name].get(key) == seen["raw"].get(key), f"{key} of raw and {name} are equal")
    if quick:
        return failures

    from mxfp4_pack import Manifest
    set_ = Manifest(packed, "vllm").sets[0]
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(packed))) as parent:
        codes = next(t for t in set_["tensors"] if t["part"] == "codes")
        flipped, output = start(with_flipped_byte(packed, parent, codes["file"], codes["name"]), backend)
        expect(flipped is not None and flipped["experts"] != experts, "a flipped bit is seen by this comparison")
        canary = set_["canary"] if isinstance(set_["canary"], str) else set_["canary"]["file"]
        changed, output = start(with_flipped_byte(packed, parent, canary, "out.w2_weight"), backend)
        expect(changed is None and "does not fit the installed vllm" in output, "a changed canary is refused")
        if changed is not None:
            log("changed canary", output)
    without, output = start(packed, backend, VLLM_PLUGINS="none")
    expect(without is None and "mxfp4_pack" in output and "nknown quantization" in output,
           "without the plugin: unknown method")
    if without is not None or failures:
        log("without the plugin", output)
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("raw")
    parser.add_argument("packed")
    parser.add_argument("backend")
    parser.add_argument("--larger")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one_start(args.raw, args.backend, args.packed)
        return 0
    failures = compare(args.raw, args.packed, args.backend, args.larger, args.quick)
    print(f"{len(failures)} failed" if failures else "all as it must be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
