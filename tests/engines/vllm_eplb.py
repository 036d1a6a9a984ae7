"""Packed experts under vLLM's expert-parallel load balancing, on two GPUs: redundant experts, and experts that move.

    mxfp4-pack synth deepseek-v4-flash R --layers 3 --experts 16
    mxfp4-pack convert R P --engine vllm --backend marlin
    python3 tests/engines/vllm_eplb.py P        (P of triton-hopper too)

vLLM 0.26.0's method for GPT-OSS does not support balancing. Therefore the model consists of DeepSeek-V4's expert layers
only, without attention: vLLM's own FusedMoE with this plugin's method, vLLM's groups, EplbState and communicator. After
each of ten rearrangements, every row of every rank is compared with the file's bytes of the expert that vLLM's map
names. The layers' results must equal those before. Exit code 0: all comparisons agree.
"""

import glob
import os
import socket
import sys
from types import SimpleNamespace

import torch

REDUNDANT, RANKS, TOP_K, ROUNDS = 4, 2, 4, 10


def files_of(directory):
    from safetensors import safe_open
    found = {}
    for path in glob.glob(os.path.join(directory, "packed", "packed-*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}
    return {name: t.view(len(t), -1).view(torch.uint8).cuda() for name, t in found.items()}


def config_of(rank):
    from vllm.config import DeviceConfig, ParallelConfig, VllmConfig
    from vllm.config.parallel import EPLBConfig
    balancing = EPLBConfig(num_redundant_experts=REDUNDANT, window_size=8, use_async=False, communicator="torch_nccl")
    parallel = ParallelConfig(tensor_parallel_size=RANKS, enable_expert_parallel=True, enable_eplb=True, eplb_config=balancing,
                              disable_custom_all_reduce=True, distributed_executor_backend="mp", rank=rank)
    config = VllmConfig(device_config=DeviceConfig(device="cuda"), parallel_config=parallel)
    config.model_config = SimpleNamespace(dtype=torch.bfloat16, quantization_config=None, enforce_eager=True, is_moe=True)
    return config


def layers_of(directory):
    from mxfp4_pack import Manifest
    from mxfp4_pack.vllm.quantization import engine_config, packed_config_class
    from vllm.config import get_current_vllm_config
    from vllm.model_executor.layers.fused_moe import FusedMoE
    manifest = Manifest(directory, "vllm")
    get_current_vllm_config().kernel_config.moe_backend = manifest.kernel("auto", 1)
    source = manifest.source_quantization
    quantization = packed_config_class(engine_config(source)).from_config(source)
    quantization.manifest = manifest
    fields = manifest.sets[0]
    experts, model = fields["tensors"][0]["experts"], fields["model"]
    layers = [FusedMoE(num_experts=experts, top_k=TOP_K, hidden_size=model["hidden"], intermediate_size=model["intermediate"],
                       params_dtype=torch.bfloat16, renormalize=True, quant_config=quantization, scoring_func="softmax",
                       swiglu_limit=model["activation"]["limit"], prefix=f"model.layers.{number}.ffn.experts",
                       enable_eplb=True, num_redundant_experts=REDUNDANT) for number in range(manifest.main_layers)]
    for layer in layers:
        layer.routed_experts.quant_method.process_weights_after_loading(layer.routed_experts)
    return layers, experts


def model_of(layers, experts):
    """A model with the interface that EplbState needs."""
    from vllm.model_executor.models.interfaces import MixtureOfExperts
    physical = experts + REDUNDANT
    model = SimpleNamespace(moe_layers=layers, num_moe_layers=len(layers), num_expert_groups=1, num_logical_experts=experts,
                            num_routed_experts=experts, num_shared_experts=0, num_redundant_experts=REDUNDANT,
                            num_physical_experts=physical, num_local_physical_experts=physical // RANKS)
    model.set_eplb_state = lambda *given: MixtureOfExperts.set_eplb_state(model, *given)
    return model


def wrong_rows(layers, want, placed, rank):
    """Rows of this rank that are not the expert that the map `placed` [layer, physical expert] says."""
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


def results(layers, inputs, config):
    from vllm.forward_context import set_forward_context
    with torch.inference_mode(), set_forward_context(None, config, num_tokens=len(inputs[0])):
        return [layer(*inputs).float() for layer in layers]


def rank_of(rank, directory, port, failed):
    from vllm.config import set_current_vllm_config
    from vllm.distributed.eplb.eplb_state import EplbState
    from vllm.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
    from vllm.v1.worker import workspace
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    config = config_of(rank)
    with set_current_vllm_config(config):
        init_distributed_environment(RANKS, rank, f"tcp://127.0.0.1:{port}", rank)
        initialize_model_parallel(RANKS)
        workspace.init_workspace_manager(device)
        with device:
            layers, experts = layers_of(directory)
        state = EplbState(config.parallel_config, device)
        state.add_model(model_of(layers, experts), SimpleNamespace(model=directory, compute_hash=lambda: "model"))
        placed, want = state.model_states["model"], files_of(directory)

        def look(what, moved=None):
            wrong, rows = wrong_rows(layers, want, placed.physical_to_logical_map, rank)
            print(f"{'FAIL' if wrong else 'ok  '} rank {rank}, {what}: {rows} rows, wrong {wrong}"
                  f"{'' if moved is None else f', other experts than before {moved}'}", flush=True)
            failed.value += bool(wrong)

        look("loaded")
        torch.manual_seed(0)
        hidden = layers[0].routed_experts.moe_config.hidden_dim_unpadded
        inputs = torch.randn(64, hidden, device=device, dtype=torch.bfloat16), torch.randn(64, experts, device=device)
        first = results(layers, inputs, config)
        for turn in range(ROUNDS):
            before = placed.physical_to_logical_map.clone()
            torch.manual_seed(turn)
            placed.expert_load_window.random_(0, 1000)
            state.rearrange()
            look(f"rearrangement {turn}", int((placed.physical_to_logical_map != before).sum()))
            errors = [float((a - b).norm() / b.norm()) for a, b in zip(results(layers, inputs, config), first)]
            print(f"{'ok  ' if max(errors) < 0.01 else 'FAIL'} rank {rank}, results differ by {max(errors):.1e}", flush=True)
            failed.value += not max(errors) < 0.01


def main():
    import torch.multiprocessing as processes
    context = processes.get_context("spawn")
    failed = context.Value("i", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(rank_of, (sys.argv[1], port, failed), RANKS)
    return 1 if failed.value else 0


if __name__ == "__main__":
    sys.exit(main())
