"""The installed SGLang's conversion of a set's canary, without a server."""

import pkgutil
from types import SimpleNamespace

import torch
from mxfp4_pack.learned import NOT_ALONE

from . import HUMMING, METHODS
from .conversion import Packed, converted_canary
from .hooks import FLASHINFER

GPT_OSS, MARLIN, CUTLASS, TRTLLM = METHODS
LOADED_AS_MXFP4 = ("gpt_oss", "kimi_k3")  # models whose layers Mxfp4MoEMethod runs; the others are FP8 checkpoints
FP8 = {"marlin": MARLIN, "humming": HUMMING, "flashinfer-cutlass": CUTLASS, "flashinfer-cutlass-mxfp8": CUTLASS,
       "flashinfer-humming": CUTLASS, "flashinfer-trtllm": TRTLLM}


def compare(packed, model_type, device):
    """Refuses a set that does not fit. Any other exception means that this SGLang cannot convert the canary here."""
    if packed.layout_file is not None:
        raise NotImplementedError(NOT_ALONE)
    entries = next(iter(packed.layers.values()))
    gpt_oss = model_type == "gpt_oss"
    mxfp4 = model_type in LOADED_AS_MXFP4
    if not mxfp4 and packed.backend not in FP8:
        raise NotImplementedError(f"SGLang has no {packed.kernel} for {model_type}")
    config = SimpleNamespace(gemm1_alpha=1.702 if gpt_oss else None, gemm1_clamp_limit=packed.swiglu_limit if gpt_oss else None,
                             swiglu_limit=packed.swiglu_limit, gate_up_interleaved=gpt_oss, is_gated=True,
                             activation="situ" if packed.activation == "situ" else "silu",
                             apply_router_weight_on_input=False, layer=None)
    method = method_of(GPT_OSS if mxfp4 else FP8[packed.backend], packed.backend, config)
    layer = layer_of(packed, entries, mxfp4, device)
    layer.moe_runner_config = config
    process = type(method).process_weights_after_loading
    converted_canary(getattr(process, "__wrapped__", process), method, layer)


def method_of(name, backend, config):
    """A method object without __init__, which would need a server's settings."""
    method = object.__new__(pkgutil.resolve_name(name))
    method.__dict__.update(
        prefix="", with_bias=True, moe_runner_config=config, runner=SimpleNamespace(config=config),
        _fp8=SimpleNamespace(process_weights_after_loading=lambda layer: None), use_marlin=backend == "marlin",
        use_triton_kernels=backend.startswith("triton"), use_flashinfer=backend.startswith("flashinfer"),
        use_deep_gemm=backend == "deepgemm", use_mega_moe=False, _use_sm90_humming=backend == "flashinfer-humming",
        _use_mxfp8_act_scaling=backend == "flashinfer-cutlass-mxfp8")
    if name == GPT_OSS:
        method._fi_kernel = next((kernel for kernel, names in FLASHINFER.items() if backend in names), None)
        for size in ("_padded_hidden", "_padded_intermediate", "_unpadded_hidden", "hidden_size",
                     "intermediate_size_per_partition", "num_experts"):
            setattr(method, size, 0)  # the canary's sizes are set in `fill`
    return method


def layer_of(packed, entries, mxfp4, device):
    """A layer of the canary's sizes, with unpacked parameters that have no memory."""
    unpacked, _ = packed.canary(torch.device("cpu"))
    layer = torch.nn.Module()
    layer.layer_name, layer.num_local_experts = "canary", unpacked["w13", "codes"].shape[0]
    layer.with_bias, layer.params_dtype = ("w13", "bias") in unpacked, torch.bfloat16
    layer.hidden_size = unpacked["w13", "codes"].shape[2] * 2
    layer.intermediate_size_per_partition = unpacked["w2", "codes"].shape[2] * 2
    names = {"codes": "weight", "scales": "weight_scale" if mxfp4 else "weight_scale_inv", "bias": "weight_bias"}
    kinds = {"codes": torch.uint8 if mxfp4 else torch.int8, "bias": torch.bfloat16,
             "scales": torch.uint8 if mxfp4 else torch.float8_e8m0fnu}
    for (role, part), tensor in unpacked.items():
        empty = torch.empty(tensor.shape, dtype=kinds[part], device="meta")
        layer.register_parameter(f"{role}_{names[part]}", torch.nn.Parameter(empty, requires_grad=False))
    for role in ("w13", "w2") if mxfp4 else ():  # the layer has biases even if the checkpoint has none
        empty = torch.empty(unpacked[role, "codes"].shape[:2], dtype=torch.bfloat16, device="meta")
        layer.register_parameter(f"{role}_weight_bias", torch.nn.Parameter(empty, requires_grad=False))
    layer.mxfp4_pack = Packed(packed, next(iter(packed.layers)), range(next(iter(entries.values())).experts))
    layer.mxfp4_pack.device = device
    return layer
