"""Packed experts in an installed vLLM on a GPU under options that keep weights elsewhere or wrap the expert layers.

    mxfp4-pack synth gpt-oss-20b R --layers 4 && mxfp4-pack convert R P --engine vllm --backend marlin
    python3 tests/engines/vllm_options.py marlin R P         (triton: P of triton-hopper, --layout-version a)

vLLM and src/loaders must be installed. Each option is given to a start of R and to one of P, each in a process of its
own: offload (--cpu-offload-gb 2: the first layers' weights in the host's memory) and lora (--enable-lora, a random
adapter on all experts). With an adapter on attention, too, vLLM 0.26.0 stops at "assert inputs.is_contiguous()".
Tokens, all log probabilities and the experts' parameters must equal R's; the adapter must change tokens or log
probabilities. Options with which R itself does not start are reported and do not count as failures of P.
"""

import argparse
import json
import os
import sys
import tempfile

import apart

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

RANK = 8
OPTIONS = {"none": {}, "offload": {"cpu_offload_gb": 2},
           "lora": {"enable_lora": True, "max_lora_rank": RANK, "max_loras": 1, "lora_target_modules": ["experts"]}}


def write_adapter(checkpoint, directory):
    import torch
    from safetensors.torch import save_file
    with open(os.path.join(checkpoint, "config.json")) as file:
        config = json.load(file)
    experts, hidden, inner = config["num_local_experts"], config["hidden_size"], config["intermediate_size"]
    shapes = {"base_layer.lora_A": (experts * RANK, hidden), "base_layer.lora_B": (2 * inner, RANK * experts),
              "lora_A": (experts * RANK, inner), "lora_B": (hidden, RANK * experts)}
    torch.manual_seed(0)
    save_file({f"base_model.model.model.layers.{layer}.mlp.experts.{name}.weight": torch.randn(shape).bfloat16() * 0.1
               for layer in range(config["num_hidden_layers"]) for name, shape in shapes.items()},
              os.path.join(directory, "adapter_model.safetensors"))
    with open(os.path.join(directory, "adapter_config.json"), "w") as file:
        json.dump({"r": RANK, "lora_alpha": RANK, "target_modules": ["experts"], "peft_type": "LORA"}, file)


def placed(model):
    """How many bytes of parameters vLLM moved to the host."""
    return sum(p.nbytes for p in model.parameters() if getattr(p, "_vllm_is_uva_offloaded", False))


def start(options):
    import numpy
    import torch
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm_experts import experts_of
    llm = LLM(model=options.start, skip_tokenizer_init=True, max_model_len=256, max_logprobs=-1, gpu_memory_utilization=0.3,
              kv_cache_memory_bytes=1 << 30, moe_backend=options.backend, attention_backend="TRITON_ATTN", seed=0,
              generation_config="vllm", enforce_eager=True, max_num_batched_tokens=256, max_num_seqs=4,
              enable_prefix_caching=False, enable_flashinfer_autotune=False, **OPTIONS[options.option])
    adapter = {"lora_request": LoRARequest("experts", 1, options.adapter)} if options.option == "lora" else {}
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=-1, ignore_eos=True, detokenize=False)
    prompt = {"prompt_token_ids": [1000 + 37 * i for i in range(32)]}
    out = llm.generate([prompt], sampling, use_tqdm=False, **adapter)[0].outputs[0]
    steps = [numpy.array([p.logprob for _, p in sorted(step.items())], numpy.float32) for step in out.logprobs]
    seen = {"tokens": list(out.token_ids), "logprobs": b"".join(step.tobytes() for step in steps),
            "experts": llm.apply_model(experts_of)[0], "gpu": torch.cuda.max_memory_allocated() / 2**30,
            "host": llm.apply_model(placed)[0] / 2**30}
    apart.keep(seen, options.result)


def seen_of(options, option, directory, adapter):
    """The observations of a start; None if it failed."""
    return apart.seen_by(__file__, options.backend, options.raw, options.packed, "--start", directory, "--option", option,
                         "--adapter", adapter)


def compare(option, raw, packed, plain):
    """The reasons why a packed start is not as it must be."""
    if packed is None:
        return ["packed did not start"]
    wrong = [key for key in ("tokens", "logprobs", "experts") if raw[key] != packed[key]]
    if option == "lora" and raw["logprobs"] == plain["logprobs"]:
        wrong.append("the adapter changes nothing")
    if option == "offload" and not packed["host"] > 0:
        wrong.append("nothing lies in the host's memory")
    return wrong


def sizes(raw, packed):
    if packed is None:
        return ""
    return (f"; GiB on the GPU {raw['gpu']:.2f}, packed {packed['gpu']:.2f}; in the host's memory {raw['host']:.2f}, "
            f"{packed['host']:.2f}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("backend", "raw", "packed"):
        parser.add_argument(name)
    parser.add_argument("--only", choices=OPTIONS, help="this option, beside none")
    for name in ("start", "option", "result", "adapter"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        return start(options)
    failed, plain = False, None
    with tempfile.TemporaryDirectory() as adapter:
        write_adapter(options.raw, adapter)
        for option in OPTIONS if options.only is None else ("none", options.only):
            raw = seen_of(options, option, options.raw, adapter)
            if raw is None:
                print(f"     {option}: vLLM does not start the raw checkpoint so", flush=True)
                continue
            packed = seen_of(options, option, options.packed, adapter)
            wrong = compare(option, raw, packed, plain)
            plain, failed = plain or raw, failed or bool(wrong)
            print(f"{'FAIL' if wrong else 'ok  '} {option}: {', '.join(wrong) or 'tokens, log probabilities, experts equal'}"
                  f"{sizes(raw, packed)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
