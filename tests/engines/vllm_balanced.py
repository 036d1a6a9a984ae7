"""DeepSeek-V4 in a whole vLLM on two GPUs, as original and packed checkpoint, also while its load balancer moves
experts.

    mxfp4-pack synth deepseek-v4-flash R --layers 4 --experts 16
    mxfp4-pack convert R P --engine vllm --backend marlin
    python3 tests/engines/vllm_balanced.py R P

vLLM and src/loaders must be installed. R (twice) and P are started expert-parallel, and P also with --enable-eplb and
four redundant experts. vLLM places these again every four steps, by the load of the answers. Each rank first compiles
about 60 kernels, one after the other, for minutes; therefore all starts run at once.

The experts' parameters of P must equal R's. After each answer of the balanced P, every row of every rank is compared
with the file's bytes of the expert that vLLM's map names. vLLM's attention for DeepSeek-V4 does not repeat its results
exactly, so log probabilities may differ by twice the difference between the two starts of R. Exit code 0: all
comparisons agree, and experts moved.

R itself cannot be balanced in vLLM 0.26.0, which sends scales as F8_E8M0 by NCCL without support for this dtype. Its
loader of this model also leaves the rows of redundant experts unset (get_expert_mapping does not pass their number).
"""

import argparse
import glob
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import apart

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

REDUNDANT, RANKS, ANSWERS = 4, 2, 6
ENVIRONMENT = {"VLLM_DEEP_GEMM_WARMUP": "skip", "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER": "0"}
BALANCED = {"enable_eplb": True, "eplb_config": {"num_redundant_experts": REDUNDANT, "window_size": 4, "step_interval": 4,
                                                 "use_async": False, "communicator": "torch_nccl"}}


def files_of(directory):
    import torch
    from safetensors import safe_open
    found = {}
    for path in glob.glob(os.path.join(directory, "packed", "packed-*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}
    return {name: t.view(len(t), -1).view(torch.uint8).cuda() for name, t in found.items()}


def wrong_rows(layers, want, placed, rank):
    """Rows of this rank that are not the expert that the map `placed` [layer, physical expert] says."""
    import torch
    from mxfp4_pack.packed_set import flat
    wrong = rows = 0
    for layer, map_ in zip(layers, placed.tolist()):
        method = layer.routed_experts.quant_method
        for key, entry in method.entries.items():
            held = flat(method.held[key]).view(layer.routed_experts.local_num_experts, -1)
            for row in range(len(held)):
                rows += 1
                wrong += not torch.equal(held[row], want[entry.name][map_[rank * len(held) + row]])
    return wrong, rows


def look(worker, directory):
    """(rows that are another expert than the map says, rows, the map as lists by layers) of one rank."""
    runner = worker.model_runner
    placed = next(iter(runner.eplb_state.model_states.values())).physical_to_logical_map
    if not hasattr(worker, "packed_files"):
        worker.packed_files = files_of(directory)
    return *wrong_rows(runner.model.moe_layers, worker.packed_files, placed, worker.rank), placed.tolist()


def answer(llm, turn):
    from vllm import SamplingParams
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=20, ignore_eos=True, detokenize=False)
    prompt = {"prompt_token_ids": [1000 + 37 * i + 7919 * turn for i in range(200)]}
    out = llm.generate([prompt], sampling, use_tqdm=False)[0].outputs[0]
    return list(out.token_ids), [sorted((t, p.logprob) for t, p in step.items()) for step in out.logprobs]


def start(options):
    from vllm import LLM
    llm = LLM(model=options.start, skip_tokenizer_init=True, generation_config="vllm", seed=0, enforce_eager=True,
              max_model_len=512, max_num_batched_tokens=256, max_num_seqs=4, gpu_memory_utilization=0.3, max_logprobs=20,
              kv_cache_memory_bytes=2 << 30, enable_prefix_caching=False, tensor_parallel_size=RANKS, enable_expert_parallel=True,
              disable_custom_all_reduce=True, kv_cache_dtype="fp8", block_size=256, moe_backend="marlin",
              enable_flashinfer_autotune=False, **(BALANCED if options.balanced else {}))
    seen = {"experts": llm.collective_rpc(held), "answers": [], "ranks": []}
    for turn in range(ANSWERS):
        seen["answers"].append(answer(llm, turn))
        if options.balanced:
            seen["ranks"].append(llm.collective_rpc(look, args=(options.start,)))
    apart.keep(seen, options.result)


def seen_of(directory, *more):
    path = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")])
    return apart.seen_by(__file__, "-", "-", "--start", directory, *more, environment=ENVIRONMENT | {"PYTHONPATH": path})


def held(worker):
    from vllm_experts import experts_of
    return experts_of(worker.get_model())


def look_at(ranks_of_answers):
    """Whether every row is the expert that the maps say, and how many places of the maps have others than one answer before."""
    before, moved, right = None, 0, True
    for turn, ranks in enumerate(ranks_of_answers):
        placed, wrong = ranks[0][2], sum(rank[0] for rank in ranks)
        other = 0 if before is None else sum(a != b for old, new in zip(before, placed) for a, b in zip(old, new))
        print(f"{'FAIL' if wrong else 'ok  '} answer {turn}: {sum(rank[1] for rank in ranks)} rows, wrong {wrong}; experts that "
              f"are elsewhere than after the answer before: {other}", flush=True)
        before, moved, right = placed, moved + other, right and not wrong
    return right, moved


def apart_by(one, other):
    """(answers with other tokens, the largest difference of a log probability that both have before the tokens differ)."""
    tokens = sum(a[0] != b[0] for a, b in zip(one["answers"], other["answers"]))
    largest = 0.0
    for (left, steps), (right, others) in zip(one["answers"], other["answers"]):
        alike = next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), len(left))
        for a, b in zip(steps[:alike + 1], others[:alike + 1]):
            b = dict(b)
            largest = max([largest, *(abs(p - b[token]) for token, p in a if token in b)])
    return tokens, largest


def experts_equal(raw, packed):
    same = bool(raw["experts"][0]) and raw["experts"] == packed["experts"]
    print(f"{'ok  ' if same else 'FAIL'} the experts' parameters of both ranks: {'equal' if same else 'differ'}", flush=True)
    return same


def as_near(what, one, other, allowed):
    """Whether log probabilities are apart by `allowed` at most."""
    tokens, largest = apart_by(one, other)
    print(f"{'ok  ' if largest <= allowed else 'FAIL'} {what}: answers with other tokens {tokens} of {ANSWERS}, log "
          f"probabilities apart by {largest:.3g} at most", flush=True)
    return largest <= allowed


def main():
    parser = argparse.ArgumentParser()
    for name in ("raw", "packed"):
        parser.add_argument(name)
    for name in ("start", "result"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--balanced", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        return start(options)
    starts = [(options.raw,), (options.raw,), (options.packed,), (options.packed, "--balanced")]
    with ThreadPoolExecutor(len(starts)) as pool:
        raw, again, packed, balanced = pool.map(lambda start: seen_of(*start), starts)
    if None in (raw, again, packed, balanced):
        sys.exit("a start failed")
    noise = 2 * apart_by(raw, again)[1]
    as_near("raw beside raw again", raw, again, noise)
    right, moved = look_at(balanced["ranks"])
    right &= experts_equal(raw, packed)
    right &= as_near("packed beside raw", raw, packed, noise)
    right &= as_near("balanced beside packed", packed, balanced, noise)
    return 0 if right and moved else 1


if __name__ == "__main__":
    sys.exit(main())
