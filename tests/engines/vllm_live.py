"""A served model in an installed vLLM on a GPU: put to sleep, loaded again, its experts replaced.

    for S in 1 2; do mxfp4-pack synth gpt-oss-20b R$S --layers 4 --seed $S
                     mxfp4-pack convert R$S P$S --engine vllm --backend marlin; done
    python3 tests/engines/vllm_live.py marlin R1 P1 R2 P2      (triton: --layout-version a; --graphs: with CUDA graphs)

vLLM, src/loaders and libmxfp4_pack must be installed. The model is started from P1. After each step its experts' bytes
are compared with the files of P1 or P2, its tokens and all log probabilities with a start of P1 or P2. Random updates
are compared with vLLM's own conversion of the same unpacked tensors. Exit code 0: all comparisons agree.
"""

import argparse
import copy
import os
import subprocess
import sys
import time

import apart

LAYER = "model.layers.{}.mlp.experts.{}"
RAW = {("w13", "codes"): "gate_up_proj_blocks", ("w13", "scales"): "gate_up_proj_scales", ("w13", "bias"): "gate_up_proj_bias",
       ("w2", "codes"): "down_proj_blocks", ("w2", "scales"): "down_proj_scales", ("w2", "bias"): "down_proj_bias"}
failures = []


def expect(right, what):
    print(f"{'ok  ' if right else 'FAIL'} {what}", flush=True)
    if not right:
        failures.append(what)


def engine(directory, options, **more):
    from vllm import LLM
    graphs = {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4]}}
    return LLM(model=directory, skip_tokenizer_init=True, max_model_len=256, max_logprobs=-1, gpu_memory_utilization=0.3,
               moe_backend=options.backend, attention_backend="TRITON_ATTN", generation_config="vllm", seed=0,
               max_num_batched_tokens=256, max_num_seqs=4, enable_prefix_caching=False,
               **(graphs if options.graphs else {"enforce_eager": True}), **more)


def generated(llm):
    from vllm import SamplingParams
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=-1, ignore_eos=True, detokenize=False)
    out = llm.generate([{"prompt_token_ids": [1000 + 37 * i for i in range(32)]}], sampling, use_tqdm=False)[0].outputs[0]
    return list(out.token_ids), [sorted((t, p.logprob) for t, p in step.items()) for step in out.logprobs]


def files_of(directory):
    """{packed tensor's name: its bytes on the GPU}"""
    import glob
    import torch
    from safetensors import safe_open
    found = {}
    for path in glob.glob(os.path.join(directory, "packed", "packed-*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {name: file.get_tensor(name).view(-1).view(torch.uint8).cuda() for name in file.keys()}
    return found


def differing(model, want):
    """Names of the packed tensors of which the engine holds other bytes, and how many it holds."""
    import torch
    from mxfp4_pack.packed_set import flat
    from mxfp4_pack.vllm.live import packed_layers
    held = {entry.name: method.held[key] for _, method in packed_layers(model) for key, entry in method.entries.items()}
    return [name for name, tensor in held.items() if not torch.equal(flat(tensor), want[name])], len(held)


def raw_experts(directory):
    """{name: tensor on the GPU}"""
    import glob
    from safetensors import safe_open
    found = {}
    for path in glob.glob(os.path.join(directory, "*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {name: file.get_tensor(name).cuda() for name in file.keys() if ".mlp.experts." in name}
    return found


def converted(layer, method, raw):
    """{(role, part): bytes}: what vLLM's own conversion makes of a layer's raw tensors, on the GPU."""
    import torch
    from mxfp4_pack.packed_set import flat
    from mxfp4_pack.vllm.quantization import KEYWORD, RESULT, engine as mxfp4, storage_of
    probe = copy.copy(layer)
    probe._parameters = {}
    for name in ("w13_weight", "w2_weight"):  # Triton's objects
        vars(probe).pop(name, None)
    with method.device:
        method.create_unpacked(copy.copy(method), probe)
    for key, tensor in raw.items():
        place = probe._parameters[KEYWORD[key]].data
        rows = tensor.flatten(2) if key[1] == "codes" else tensor
        (place[:, :rows.shape[1], :rows.shape[2]] if rows.ndim == 3 else place[:, :rows.shape[1]]).copy_(rows)
    made = mxfp4.convert_gpt_oss_weight_to_mxfp4_moe_kernel_format(
        mxfp4_backend=method.mxfp4_backend, layer=probe, _cache_permute_indices={},
        **{KEYWORD[key]: probe._parameters[KEYWORD[key]] for key in RESULT})
    return {key: flat(getattr(storage_of(thing), "data", thing)) for key, thing in zip(RESULT, made)}


def random_updates(model, raw, rounds):
    """Each: one layer, some of its tensors, one expert of them random. Returns the numbers of those that differ."""
    import random
    import mxfp4_pack
    import torch
    from mxfp4_pack.packed_set import flat
    from mxfp4_pack.vllm.live import packed_layers
    dice, wrong = random.Random(0), []
    layers = packed_layers(model)
    for turn in range(rounds):
        layer, method = dice.choice(layers)
        name = {key: LAYER.format(method.place[1], end) for key, end in RAW.items()}
        chosen = dice.sample(sorted(RAW), dice.randrange(1, 7))
        for key in chosen:
            expert = raw[name[key]][dice.randrange(32)]
            expert.copy_(torch.randn(expert.shape, device="cuda") if key[1] == "bias" else
                         torch.randint(*((0, 256) if key[1] == "codes" else (110, 130)), expert.shape, device="cuda"))
        mxfp4_pack.update(model, [name[key] for key in chosen], [raw[name[key]] for key in chosen])
        want = converted(layer, method, {key: raw[name[key]] for key in RAW})
        if not all(torch.equal(flat(method.held[key]), want[key]) for key in RAW):
            wrong.append(turn)
    return wrong


def used():
    import psutil
    import torch
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {"torch": torch.cuda.memory_allocated(), "gpu": total - free, "host": psutil.Process().memory_info().rss,
            "files": psutil.Process().num_fds()}


def many_updates(model, raw, rounds):
    """The growth of memory over `rounds` updates of a whole layer, and the seconds of one update."""
    import mxfp4_pack
    names = [LAYER.format(0, end) for end in RAW.values()]
    for turn in range(50 + rounds):
        if turn == 50:
            before, begin = used(), time.monotonic()
        mxfp4_pack.update(model, names, [raw[name] for name in names])
    after = used()
    return {key: after[key] - before[key] for key in after}, (time.monotonic() - begin) / rounds


def sleep_and_wake(llm, want, first):
    import torch
    before = torch.cuda.mem_get_info()[0]
    llm.sleep(level=2)
    print(f"     asleep: {(torch.cuda.mem_get_info()[0] - before) / 2**30:.2f} GiB of the GPU are free again", flush=True)
    llm.wake_up(tags=["weights"])
    lost = llm.apply_model(lambda model: differing(model, want))[0]
    expect(len(lost[0]) == lost[1], f"sleep level 2 drops all {lost[1]} packed tensors")
    begin = time.monotonic()
    llm.collective_rpc("reload_weights")
    print(f"     reload_weights: {time.monotonic() - begin:.2f} s", flush=True)
    llm.wake_up(tags=["kv_cache"])
    expect(llm.apply_model(lambda model: differing(model, want))[0][0] == [], "after it experts are those of P1")
    expect(generated(llm) == first, "and tokens and log probabilities too")


def transfer(llm, weights):
    """Through vLLM's weight transfer: its start, update and finish, with tensors of this process in the place of those that
    CUDA IPC brings from another."""
    from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine
    IPCWeightTransferEngine.receive_weights = lambda self, info: [self.model.load_weights([w]) for w in weights]
    llm.init_weight_transfer_engine({"init_info": {}})
    llm.start_weight_update()
    llm.update_weights({"update_info": {"names": [], "dtype_names": [], "shapes": [], "ipc_handles": []}})
    llm.finish_weight_update()


def import_transfer():
    """vLLM 0.26.0's module imports ray, which nothing here uses."""
    from types import ModuleType
    missing = "ray" not in sys.modules
    sys.modules.setdefault("ray", ModuleType("ray"))
    import vllm.distributed.weight_transfer.ipc_engine  # noqa: F401
    if missing:
        del sys.modules["ray"]


def served(options):
    import torch
    import mxfp4_pack
    import_transfer()
    want = {1: files_of(options.packed), 2: files_of(options.packed2)}
    reference = torch.load(options.reference)
    llm = engine(options.packed, options, enable_sleep_mode=True, weight_transfer_config={"backend": "ipc"})

    def holds(number, what, tokens=None):
        wrong, count = llm.apply_model(lambda model: differing(model, want[number]))[0]
        expect(wrong == [], f"{what}: {count} packed tensors are those of P{number} {wrong[:2]}")
        if tokens is not None:
            expect(generated(llm) == tokens, f"{what}: tokens and log probabilities too")

    first = generated(llm)
    holds(1, "start")
    sleep_and_wake(llm, want[1], first)
    llm.collective_rpc("reload_weights", kwargs={"weights_path": options.packed2})
    holds(2, "reload from P2", reference)
    llm.collective_rpc("reload_weights", kwargs={"weights_path": options.raw})
    holds(1, "reload from R1", first)
    raw = raw_experts(options.raw2)
    transfer(llm, list(raw.items()))
    holds(2, "weight transfer of R2's experts")
    llm.collective_rpc("reload_weights", kwargs={"weights_path": options.packed})
    holds(1, "reload from P1", first)
    llm.apply_model(lambda model: mxfp4_pack.update(model, raw.keys(), raw.values()))
    holds(2, "update with R2's experts")
    wrong = llm.apply_model(lambda model: random_updates(model, raw, 100))[0]
    expect(wrong == [], f"100 random updates are what vLLM converts {wrong}")
    grown, seconds = llm.apply_model(lambda model: many_updates(model, raw, 1000))[0]
    size = sum(raw[LAYER.format(0, end)].nbytes for end in RAW.values())
    print(f"     a layer: {seconds * 1e3:.2f} ms, {size / 1e9 / seconds:.0f} GB/s of raw bytes; over 1000 rounds grew {grown}",
          flush=True)
    expect(grown["torch"] == grown["files"] == 0 and grown["gpu"] <= 0 and grown["host"] < 8 << 20, "1000 updates leak nothing")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    for name in ("raw", "packed", "raw2", "packed2"):
        parser.add_argument(name)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--reference", help="of a start of P2 alone: where its tokens and log probabilities are kept")
    parser.add_argument("--served", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= apart.ENVIRONMENT
    if options.served:
        served(options)
    elif options.reference:
        import torch
        torch.save(generated(engine(options.packed2, options)), options.reference)
    else:
        reference = f"{options.packed2}.{options.backend}.reference"
        for more in (["--reference", reference], ["--reference", reference, "--served"]):
            if code := subprocess.call([sys.executable, *sys.argv, *more]):
                return code
        return 0
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
