"""A small stand-in for the part of SGLang that the loader uses: the classes, names and order of v0.5.17. StructArgs and
scale_name have the differences of later versions; formats.py replaces the kernels. Hooks work as SGLang's registry
documents them. `serve` goes through a start in its order."""

import functools
import json
import os
import pkgutil
import sys
from enum import Enum
from types import SimpleNamespace

import torch
from torch.nn import Module, Parameter

import formats
import golden
import sglang_options_stand_in as options

SRT = "sglang.srt"
QUANTIZATION = SRT + ".layers.quantization"
TP = SimpleNamespace(size=1, rank=0, ep_rank=0)
runner = SimpleNamespace(backend=None)  # --moe-runner-backend of this process
converter_bug = SimpleNamespace(value=False)  # the installed converter makes other bytes
kernel_options = {}
scale_name = SimpleNamespace(value="weight_scale")  # of triton_kernels' PrecisionConfig


class HookType(Enum):
    BEFORE, AFTER, AROUND, REPLACE = range(4)


class HookRegistry:
    hooks = []

    @classmethod
    def register(cls, target, hook, hook_type):
        cls.hooks.append((target, hook, hook_type))

    @classmethod
    def apply(cls, leave_out=()):
        for target, hook, kind in cls.hooks:
            if target not in leave_out:
                path, _, name = target.rpartition(".")
                owner = pkgutil.resolve_name(path)
                setattr(owner, name, wrapped(getattr(owner, name), hook, kind))


def wrapped(original, hook, kind):
    @functools.wraps(original)
    def call(*args, **kwargs):
        if kind == HookType.AROUND:
            return hook(original, *args, **kwargs)
        if kind == HookType.BEFORE:
            args, kwargs = hook(*args, **kwargs) or (args, kwargs)
            return original(*args, **kwargs)
        result = original(*args, **kwargs)
        changed = hook(result, *args, **kwargs)
        return result if changed is None else changed
    return call


class ServerArgs:
    def __init__(self, model_path, **given):
        self.model_path = model_path
        values = {"moe_runner_backend": "auto", "speculative_moe_runner_backend": None, "enable_eplb": False,
                  "ep_num_redundant_experts": 0, "init_expert_location": "trivial", "cpu_offload_gb": 0,
                  "offload_group_size": -1, "enable_lora": None, "lora_paths": None, "enable_memory_saver": False,
                  "load_format": "auto",
                  "tp_size": TP.size, "ep_size": 1}
        vars(self).update(values | given)
        self.__post_init__()

    def __post_init__(self):
        if self.moe_runner_backend == "auto":
            self.moe_runner_backend = "triton_kernel"


class StructArgs(ServerArgs):
    """The arguments from v0.5.20 on. resolve_once completes them and declares values separately from the fields; the
    class keeps its original __post_init__."""

    def __init__(self, model_path, **given):
        vars(self).update(vars(self.raw(model_path, given)))

    @staticmethod
    def raw(model_path, given):
        made = object.__new__(StructArgs)
        made.__post_init__ = lambda: None
        ServerArgs.__init__(made, model_path, **given)
        return made

    def __setattr__(self, name, value):
        if vars(self).get("_resolution_finished"):
            raise AttributeError(f"server_args.{name} assigned after resolution")
        object.__setattr__(self, name, value)

    def resolve_once(self):
        if not vars(self).get("_resolution_finished"):
            chosen = "triton_kernel" if self.moe_runner_backend == "auto" else self.moe_runner_backend
            self._resolved_overrides = [("model", {"moe_runner_backend": chosen})]
            self._resolution_finished = True


def get_config(model, trust_remote_code=False):
    with open(os.path.join(model, "config.json")) as file:
        return SimpleNamespace(**json.load(file))


def parameter(t):
    return Parameter(t, requires_grad=False)


def unpacked_parameters(layer, e, h, i, code_dtype, scale_dtype, scale_suffix, bias):
    for role, rows, k in (("w13", 2 * i, h), ("w2", h, i)):
        layer.register_parameter(f"{role}_weight", parameter(torch.zeros((e, rows, k // 2), dtype=code_dtype)))
        layer.register_parameter(f"{role}_weight_scale{scale_suffix}", parameter(
            torch.full((e, rows, k // 32), 127, dtype=torch.uint8).view(scale_dtype)))
        if bias:
            layer.register_parameter(f"{role}_weight_bias", parameter(torch.zeros((e, rows), dtype=torch.bfloat16)))


def read(layer):
    """The raw layer in bytes, under whichever name its scales have."""
    out = {}
    for role in ("w13", "w2"):
        out[role, "codes"] = getattr(layer, f"{role}_weight").data.view(torch.uint8)
        name = f"{role}_weight_scale"
        out[role, "scales"] = getattr(layer, name if hasattr(layer, name) else name + "_inv").data.view(torch.uint8)
        if hasattr(layer, f"{role}_weight_bias"):
            out[role, "bias"] = getattr(layer, f"{role}_weight_bias").data
    return out


# marlin_utils_fp4

def deinterleave_moe_mxfp4_w13_for_marlin(layer):
    for name in ("w13_weight", "w13_weight_scale", "w13_weight_bias"):
        getattr(layer, name).data = formats.gate_up(getattr(layer, name).data)


def prepare_moe_mxfp4_layer_for_marlin(layer):
    layer.workspace = torch.zeros(8, dtype=torch.int32, device=layer.w13_weight.device)
    made = formats.marlin(read(layer))
    if converter_bug.value:
        made["w2", "codes"] = made["w2", "codes"] ^ 1
    for (role, part), t in made.items():
        suffix = {"codes": "", "scales": "_scale", "bias": "_bias"}[part]
        setattr(layer, f"{role}_weight{suffix}", parameter(t))
    for stale in ("w13_weight_scale_inv", "w2_weight_scale_inv"):
        if hasattr(layer, stale):
            delattr(layer, stale)


# flashinfer.fused_moe

def interleave_moe_weights_for_sm90_mixed_gemm(weight, kind):
    assert kind == "fp4"
    made = formats.flashinfer_sm90_v1({("w13", "codes"): weight})["w13", "codes"]
    return made ^ 1 if converter_bug.value else made


def interleave_moe_scales_for_sm90_mixed_gemm(scale, group_size):
    assert group_size == 32
    return formats.flashinfer_sm90_v1({("w13", "scales"): scale})["w13", "scales"]


# mxfp4

class Wrapped:
    def __init__(self, data):
        self.storage = SimpleNamespace(data=data)


def _swizzle_mxfp4(quant_tensor, scale, num_warps):
    kernel_options["split_k"] = 1
    codes = formats.hopper_codes(quant_tensor.data, 64, 64)
    return Wrapped(codes ^ 1 if converter_bug.value else codes), "flex", Wrapped(formats.hopper_scales(scale.data, 2))


def module(name):
    return sys.modules[f"{QUANTIZATION}.{name}"]


class Mxfp4MoEMethod:
    def __init__(self):
        self.use_marlin = runner.backend == "marlin"
        self.use_triton_kernels = runner.backend == "triton_kernel"
        self._fi_kernel = "cutlass_sm90" if runner.backend == "flashinfer_mxfp4" else None

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, with_bias, **extra):
        h, i = hidden_size, intermediate_size_per_partition
        if self.use_marlin or self.use_triton_kernels:
            h, i = formats.padded_sizes("sglang", "marlin" if self.use_marlin else "triton-hopper", h, i)
        else:  # FusedMoE has padded hidden; intermediate is padded after loading
            h, i = -(-h // 256) * 256, i
            self._padded_hidden, self._padded_intermediate = h, -(-i // 128) * 128
        unpacked_parameters(layer, num_experts, h, i, torch.uint8, torch.uint8, "", True)

    def create_moe_runner(self, layer, config):
        self.moe_runner_config = config

    def process_weights_after_loading(self, layer):
        if self.use_marlin:
            if self.moe_runner_config.gemm1_alpha is not None:
                module("marlin_utils_fp4").deinterleave_moe_mxfp4_w13_for_marlin(layer)
            module("marlin_utils_fp4").prepare_moe_mxfp4_layer_for_marlin(layer)
            layer._mxfp4_backend = "marlin"
        elif self._fi_kernel:
            self._process_weights_for_sm90_cutlass(layer)
        else:
            for name in ("w13_weight_bias", "w2_weight_bias"):
                setattr(layer, name, parameter(getattr(layer, name).to(torch.float32)))
            for role in ("w13", "w2"):
                weight, _, scale = module("mxfp4")._swizzle_mxfp4(getattr(layer, role + "_weight"),
                                                                 getattr(layer, role + "_weight_scale"), 8)
                setattr(self, role + "_weight_triton_tensor", weight)
                setattr(self, role + "_precision_config", SimpleNamespace(**{scale_name.value: scale}))
                delattr(layer, role + "_weight")

    def _process_weights_for_sm90_cutlass(self, layer):
        h, i = self._padded_hidden, self._padded_intermediate
        raw = formats.pad(read(layer), True, h, i, (0, 0))
        for (role, part), t in formats.converted("sglang", "flashinfer-cutlass", raw, True).items():
            suffix = {"codes": "", "scales": "_scale", "bias": "_bias"}[part]
            setattr(layer, f"{role}_weight{suffix}", parameter(t ^ 1 if converter_bug.value and part == "codes" else t))
        for name, value in (("alpha", layer.moe_runner_config.gemm1_alpha), ("beta", 1.0),
                            ("limit", layer.moe_runner_config.gemm1_clamp_limit)):
            setattr(layer, "swiglu_" + name, parameter(torch.full((layer.num_local_experts,), value)))


class Mxfp4MarlinMoEMethod:
    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, **extra):
        h, i = formats.padded_sizes("sglang", "marlin", hidden_size, intermediate_size_per_partition)
        unpacked_parameters(layer, num_experts, h, i, torch.int8, torch.float8_e8m0fnu, "_inv", False)
        layer._dsv4_mxfp4_backend = None

    def create_moe_runner(self, layer, config):
        self.runner = SimpleNamespace(config=config)

    def process_weights_after_loading(self, layer):
        module("marlin_utils_fp4").prepare_moe_mxfp4_layer_for_marlin(layer)
        layer._dsv4_mxfp4_backend = "marlin"


class Mxfp4FlashinferCutlassMoEMethod:
    _use_mxfp8_act_scaling = False
    load_up_proj_weight_first = True  # its raw w13 is [up; gate]
    prefix = ""

    def __init__(self):
        self._fp8 = SimpleNamespace(process_weights_after_loading=lambda layer: None)

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, **extra):
        unpacked_parameters(layer, num_experts, hidden_size, intermediate_size_per_partition, torch.int8,
                       torch.float8_e8m0fnu, "_inv", False)

    def create_moe_runner(self, layer, config):
        self.moe_runner_config = config
        self._swiglu_limit_tensor = torch.full((layer.num_local_experts,), config.swiglu_limit,
                                               device=layer.w13_weight.device)

    def process_weights_after_loading(self, layer):
        self._fp8.process_weights_after_loading(layer)
        import flashinfer.fused_moe as f
        weights = [f.interleave_moe_weights_for_sm90_mixed_gemm(t.data.view(torch.uint8).contiguous(), "fp4")
                   for t in (layer.w13_weight, layer.w2_weight)]
        scales = [f.interleave_moe_scales_for_sm90_mixed_gemm(t.data.view(torch.uint8), group_size=32)
                  for t in (layer.w13_weight_scale_inv, layer.w2_weight_scale_inv)]
        layer.w13_weight, layer.w2_weight = map(parameter, weights)
        layer.w13_weight_scale_inv, layer.w2_weight_scale_inv = map(parameter, scales)
        layer._dsv4_mxfp4_backend = "flashinfer_cutlass_sm90"


class Mxfp4FlashinferTrtllmMoEMethod:
    """Nothing here runs it; the plugin hooks it."""

    def create_weights(self, layer, **extra):
        raise NotImplementedError

    def process_weights_after_loading(self, layer):
        raise NotImplementedError


class FusedMoE(Module):
    def __init__(self, method, prefix, layer_id, num_experts, ep_size, hidden, intermediate, config):
        super().__init__()
        self.layer_name, self.layer_id, self.num_experts = prefix, layer_id, num_experts
        self.moe_tp_size, self.moe_tp_rank, self.moe_ep_rank = TP.size, TP.rank, TP.ep_rank
        self.num_local_experts = num_experts // ep_size
        self.moe_runner_config, self.quant_method = config, method
        method.create_weights(layer=self, num_experts=self.num_local_experts, hidden_size=hidden,
                              intermediate_size_per_partition=intermediate, with_bias=True, weight_loader=None)
        method.create_moe_runner(self, config)


class Model(Module):
    """A model. `others` are the weights other than experts."""

    def __init__(self, experts):
        super().__init__()
        self.experts, self.others = torch.nn.ModuleList(experts), {}

    def load_weights(self, weights):
        self.others |= dict(weights)


class WeightUpdater:
    def __init__(self, layers=(), broken=()):
        self.model, self.broken = getattr(layers, "model", None) or Model(layers), broken
        self.loaded = []

    def get_model(self):
        return self.model

    def update_weights_from_disk(self, model_path, load_format, weight_name_filter=None):
        """Loads all weights outside of expert layers; a directory in `broken` only in part."""
        self.loaded.append(model_path)
        if model_path in self.broken:
            return False, "Failed to update weights: x.\nRolling back to original weights."
        for layer in self.model.experts:
            layer.quant_method.process_weights_after_loading(layer)
        return True, "Succeeded to update model weights."

    def update_weights_from_tensor(self, named_tensors, load_format=None):
        if load_format != "direct":
            self.model.load_weights(named_tensors)
        return True, "Success"


class DefaultModelLoader:
    def load_model(self, *, model_config, device_config):
        with torch.device(device_config):
            model = model_config()
        for layer in model.modules():
            if hasattr(layer, "quant_method"):
                with pkgutil.resolve_name(SRT + ".model_loader.loader.device_loading_context")(layer, device_config):
                    layer.quant_method.process_weights_after_loading(layer)
        return model


def serve(directory, checkpoint, layers, experts=None, ep_size=1, method=None, before_processing=None, draft=False, **given):
    """One rank's start; `layers` are (prefix, layer_id). Returns the expert layers."""
    args = ServerArgs(directory, **given)
    runner.backend = args.moe_runner_backend
    config = pkgutil.resolve_name(SRT + ".utils.hf_transformers.config").get_config(directory, trust_remote_code=False)
    name = config.quantization_config["quant_method"]
    if name not in ("mxfp4", "fp8"):
        raise ValueError(f"Unknown quantization method: {name}")
    deepseek = {"marlin": Mxfp4MarlinMoEMethod, "flashinfer_mxfp4": Mxfp4FlashinferCutlassMoEMethod}
    first = next(iter(checkpoint.layers.values()))
    first = first[0] if isinstance(first, list) else first
    runner_config = SimpleNamespace(gemm1_alpha=1.702 if name == "mxfp4" else None, gemm1_clamp_limit=7.0 if name == "mxfp4" else None,
                                    swiglu_limit=checkpoint.swiglu_limit)

    def model():
        made = Model(
            FusedMoE((method or (Mxfp4MoEMethod if name == "mxfp4" else deepseek[runner.backend]))(), prefix, number,
                     experts or first["w13", "codes"].shape[0], ep_size, checkpoint.hidden, checkpoint.intermediate,
                     runner_config) for prefix, number in layers)
        if before_processing:
            before_processing(made)
        return made

    model.is_draft_model = draft
    return Layers(DefaultModelLoader().load_model(model_config=model, device_config="cpu"))


class Layers(list):
    """The expert layers of a model."""

    def __init__(self, model):
        super().__init__(model.experts)
        self.model = model


def install():
    """Installs the stand-ins as the modules of SGLang and FlashInfer."""
    modules = {
        "sglang": [], SRT: [], SRT + ".plugins": [], SRT + ".plugins.hook_registry": [HookRegistry, HookType],
        SRT + ".server_args": [ServerArgs], SRT + ".utils": [], SRT + ".utils.hf_transformers": [],
        SRT + ".utils.hf_transformers.config": [get_config], SRT + ".model_loader": [],
        SRT + ".model_loader.loader": [DefaultModelLoader, *options.LOADER], SRT + ".model_executor": [],
        SRT + ".model_executor.model_runner_components": [],
        SRT + ".model_executor.model_runner_components.weight_updater": [WeightUpdater],
        SRT + ".layers": [], QUANTIZATION: [],
        QUANTIZATION + ".mxfp4": [Mxfp4MoEMethod, _swizzle_mxfp4],
        QUANTIZATION + ".mxfp4_marlin_moe": [Mxfp4MarlinMoEMethod],
        QUANTIZATION + ".mxfp4_flashinfer_cutlass_moe": [Mxfp4FlashinferCutlassMoEMethod],
        QUANTIZATION + ".mxfp4_flashinfer_trtllm_moe": [Mxfp4FlashinferTrtllmMoEMethod],
        QUANTIZATION + ".marlin_utils_fp4": [deinterleave_moe_mxfp4_w13_for_marlin, prepare_moe_mxfp4_layer_for_marlin],
        "flashinfer": [], "flashinfer.fused_moe": [interleave_moe_weights_for_sm90_mixed_gemm,
                                                   interleave_moe_scales_for_sm90_mixed_gemm],
    } | options.modules(SRT)
    golden.install({name: {m.__name__: m for m in members} for name, members in modules.items()})
    sys.modules["sglang"].__path__ = [""]  # where the loader looks for what only some versions have
