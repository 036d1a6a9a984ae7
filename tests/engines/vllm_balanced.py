"""DeepSeek-V4 in a whole vLLM on two GPUs, raw and packed, also while its load balancer moves experts.

    mxfp4-pack synth deepseek-v4-flash R --layers 4 --experts 16
    mxfp4-pack convert R P --engine vllm --backend marlin
    python3 tests/engines/vllm_balanced.py R P

vLLM and src/loaders must be installed. R and P are started expert-parallel, and both again with --enable-eplb and four redundant
experts, which vLLM places anew every four steps by the loads that the answers made. After each answer every row of every rank
of P is compared with the file's bytes of the expert that vLLM's map says is there. Tokens, the 20 largest log probabilities of
each step and vLLM's maps must be R's. vLLM 0.26.0 cannot balance R itself, since it sends F8_E8M0 scales by NCCL, which does
not take them: R's parameters are handed to it as bytes (get_expert_weights). Each rank first compiles some 60 kernels, for
minutes: this script was not yet run to its end. Exit code 0: all as it must be, and experts moved.
"""

import argparse
import os
import sys

import apart

REDUNDANT, RANKS, ANSWERS = 4, 2, 6
ENVIRONMENT = {"VLLM_DEEP_GEMM_WARMUP": "skip", "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER": "0"}
BALANCED = {"enable_eplb": True, "eplb_config": {"num_redundant_experts": REDUNDANT, "window_size": 4, "step_interval": 4,
                                                 "use_async": False, "communicator": "torch_nccl"}}


def look(worker, directory):
    """(rows that are another expert than the map says, rows, the map as lists by layers) of one rank; of R no rows."""
    from mxfp4_pack.vllm.live import packed_layers
    from vllm_eplb import files_of, wrong_rows
    runner = worker.model_runner
    placed = next(iter(runner.eplb_state.model_states.values())).physical_to_logical_map
    if not packed_layers(runner.model):
        return 0, 0, placed.tolist()
    if not hasattr(worker, "packed_files"):
        worker.packed_files = files_of(directory)
    return *wrong_rows(runner.model.moe_layers, worker.packed_files, placed, worker.rank), placed.tolist()


def answer(llm, turn):
    from vllm import SamplingParams
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=20, ignore_eos=True, detokenize=False)
    prompt = {"prompt_token_ids": [1000 + 37 * i + 7919 * turn for i in range(200)]}
    out = llm.generate([prompt], sampling, use_tqdm=False)[0].outputs[0]
    return list(out.token_ids), [sorted((t, p.logprob) for t, p in step.items()) for step in out.logprobs]


def as_bytes():
    """What vLLM moves of raw experts has a dtype that NCCL takes."""
    import torch
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
    original = RoutedExperts.get_expert_weights
    RoutedExperts.get_expert_weights = lambda layer: [weight.view(torch.uint8) for weight in original(layer)]


def start(options):
    from vllm import LLM
    if options.balanced:
        as_bytes()
    llm = LLM(model=options.start, skip_tokenizer_init=True, generation_config="vllm", seed=0, enforce_eager=True,
              max_model_len=512, max_num_batched_tokens=256, max_num_seqs=4, gpu_memory_utilization=0.3, max_logprobs=20,
              kv_cache_memory_bytes=2 << 30, enable_prefix_caching=False, tensor_parallel_size=RANKS, enable_expert_parallel=True,
              disable_custom_all_reduce=True, kv_cache_dtype="fp8", block_size=256, moe_backend="marlin",
              enable_flashinfer_autotune=False, **(BALANCED if options.balanced else {}))
    seen = []
    for turn in range(ANSWERS):
        seen.append(answer(llm, turn))
        if options.balanced:
            seen[-1] = (*seen[-1], llm.collective_rpc(look, args=(options.start,)))
    apart.keep(seen, options.result)


def seen_of(directory, *more):
    path = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")])
    return apart.seen_by(__file__, "-", "-", "--start", directory, *more, environment=ENVIRONMENT | {"PYTHONPATH": path})


def look_at(seen):
    """Whether every row is the expert that the maps say, and how many places of the maps have others than one answer before."""
    before, moved, right = None, 0, True
    for turn, (_, _, ranks) in enumerate(seen):
        placed, wrong = ranks[0][2], sum(rank[0] for rank in ranks)
        other = 0 if before is None else sum(a != b for old, new in zip(before, placed) for a, b in zip(old, new))
        print(f"{'FAIL' if wrong else 'ok  '} answer {turn}: {sum(rank[1] for rank in ranks)} rows, wrong {wrong}; experts that "
              f"are elsewhere than after the answer before: {other}", flush=True)
        before, moved, right = placed, moved + other, right and not wrong
    return right, moved


def compared(what, raw, packed):
    """The same tokens, log probabilities and maps."""
    parts = [seen and [(*one[:2], *(rank[2] for ranks in one[2:] for rank in ranks)) for one in seen] for seen in (raw, packed)]
    equal = None not in parts and parts[0] == parts[1]
    print(f"{'ok  ' if equal else 'FAIL'} {what}: "
          f"{'tokens and log probabilities equal' if equal else 'did not start' if None in parts else 'other than raw'}", flush=True)
    return equal


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
    right = compared("packed beside raw", seen_of(options.raw), seen_of(options.packed))
    balanced = seen_of(options.packed, "--balanced")
    rows, moved = look_at(balanced) if balanced else (False, 0)
    same = compared("balanced, packed beside raw", seen_of(options.raw, "--balanced"), balanced)
    return 0 if right and rows and moved and same else 1


if __name__ == "__main__":
    sys.exit(main())
