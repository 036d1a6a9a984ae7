"""The part of vLLM that the loader meets, small: the classes, names and keywords of v0.26.0, and formats.py in the
place of its kernels. `serve` goes through a start in vLLM's order."""

import json
import os
import pickle
import sys
from contextlib import nullcontext
from enum import Enum
from types import SimpleNamespace

import torch
from torch.nn import Module, Parameter

import formats
import golden
import vllm_reload_stand_in as reload

QUANTIZATION = "vllm.model_executor.layers.quantization"


class QuantizationConfig:
    @classmethod
    def override_quantization_method(cls, hf_quant_cfg, user_quant, hf_config=None):
        return None

    def maybe_update_config(self, model_name, hf_config=None, revision=None):
        pass


methods = {}


def register_quantization_config(name):
    def keep(cls):
        assert issubclass(cls, QuantizationConfig)
        methods[name] = cls
        return cls
    return keep


class Backend(Enum):
    MARLIN = "MARLIN"
    TRITON = "TRITON"
    TRITON_UNFUSED = "TRITON_UNFUSED"
    FLASHINFER_CUTLASS_MXFP4_BF16 = "FLASHINFER_CUTLASS_MXFP4_BF16"


ASKED = {"auto": Backend.MARLIN, "marlin": Backend.MARLIN, "triton": Backend.TRITON,
         "triton_unfused": Backend.TRITON_UNFUSED, "flashinfer_cutlass": Backend.FLASHINFER_CUTLASS_MXFP4_BF16}
NAME = {Backend.MARLIN: "marlin", Backend.TRITON: "triton-hopper", Backend.TRITON_UNFUSED: "triton-hopper",
        Backend.FLASHINFER_CUTLASS_MXFP4_BF16: "flashinfer-cutlass"}


class Storage:
    def __init__(self, data):
        self.data = data


class TritonTensor:
    def __init__(self, data, shape):
        self.storage, self.shape = Storage(data), shape


class PrecisionConfig:
    def __init__(self, weight_scale):
        self.weight_scale = weight_scale


kernel_options = {}
converter_bug = SimpleNamespace(value=False)  # the installed converter makes other bytes


def convert(pairs, mxfp4_backend, layer, w13_weight, w2_weight, w13_weight_scale, w2_weight_scale, w13_bias, w2_bias,
            _cache_permute_indices):
    raw = {("w13", "codes"): w13_weight, ("w13", "scales"): w13_weight_scale, ("w2", "codes"): w2_weight,
           ("w2", "scales"): w2_weight_scale, ("w13", "bias"): w13_bias, ("w2", "bias"): w2_bias}
    raw = {key: t.data for key, t in raw.items() if t is not None}
    assert layer.params_dtype == torch.bfloat16
    made = formats.converted("vllm", NAME[mxfp4_backend], raw, pairs)
    if converter_bug.value:
        made["w2", "codes"] = made["w2", "codes"] ^ 1
    codes, scales = ([made[role, part] for role in ("w13", "w2")] for part in ("codes", "scales"))
    if NAME[mxfp4_backend] == "triton-hopper":
        kernel_options["split_k"] = 1
        for name in ("w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale"):
            delattr(layer, name)
        codes = [TritonTensor(t, "logical") for t in codes]
        scales = [PrecisionConfig(TritonTensor(t, "logical")) for t in scales]
    return (*codes, *scales, made.get(("w13", "bias")), made.get(("w2", "bias")))


def convert_gpt_oss_weight_to_mxfp4_moe_kernel_format(**given):
    return convert(True, **given)


def convert_weight_to_mxfp4_moe_kernel_format(**given):
    return convert(False, **given)


class MarlinExperts:
    def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, expert_map,
              a1q_scale, a2_scale, workspace13, workspace2, expert_tokens_meta, apply_router_weight_on_input):
        output.fill_(-1)


class UnfusedOAITritonExperts(MarlinExperts):
    pass


class OAITritonMxfp4ExpertsMonolithic:
    renormalize = True

    def apply(self, hidden_states, w1, w2, router_logits, activation, global_num_experts, expert_map, a1q_scale,
              apply_router_weight_on_input, num_expert_group=None, e_score_correction_bias=None, routed_scaling_factor=None,
              topk_group=None):
        return torch.full_like(hidden_states, -1)


EXPERTS = {Backend.MARLIN: MarlinExperts, Backend.TRITON: OAITritonMxfp4ExpertsMonolithic,
           Backend.TRITON_UNFUSED: UnfusedOAITritonExperts, Backend.FLASHINFER_CUTLASS_MXFP4_BF16: SimpleNamespace}


class Kernel(tuple):
    fused_experts = None


def fused_topk(hidden_states, gating_output, topk, renormalize):
    logits, ids = gating_output.float().topk(topk)
    return logits.softmax(-1), ids.to(torch.int32), None


class MoeMethod:
    supports_eplb = False

    def __init__(self, moe):
        self.moe, self.moe_kernel = moe, None
        self.mxfp4_backend = ASKED[moe.moe_backend]

    def maybe_roundup_sizes(self, hidden_size, intermediate_size_per_partition, act_dtype, moe_parallel_config):
        return formats.padded_sizes("vllm", NAME[self.mxfp4_backend], hidden_size, intermediate_size_per_partition)

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype, **extra):
        self.num_experts, layer.params_dtype = num_experts, params_dtype
        e, h, i = num_experts, hidden_size, intermediate_size_per_partition
        self.raw = {"w13_weight": (e, 2 * i, h // 2), "w13_weight_scale": (e, 2 * i, h // 32),
                    "w2_weight": (e, h, i // 2), "w2_weight_scale": (e, h, i // 32)}
        for name, shape in self.raw.items():
            layer.register_parameter(name, Parameter(torch.zeros(shape, dtype=torch.uint8), requires_grad=False))
        if self.moe.has_bias:
            for name, rows in (("w13_bias", 2 * i), ("w2_bias", h)):
                layer.register_parameter(name, Parameter(torch.zeros((e, rows), dtype=torch.bfloat16),
                                                         requires_grad=False))

    def process_weights_after_loading(self, layer):
        assert not globals_of_mxfp4("is_weights_pre_processed")(), "pre-processed weights require another backend"
        names = ("w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale")
        for name in names:
            assert tuple(getattr(layer, name).shape) == self.raw[name]
        made = globals_of_mxfp4(self.converter_name)(
            mxfp4_backend=self.mxfp4_backend, layer=layer, **{name: getattr(layer, name) for name in names},
            w13_bias=getattr(layer, "w13_bias", None), w2_bias=getattr(layer, "w2_bias", None),
            _cache_permute_indices={"shared": True})
        if NAME[self.mxfp4_backend] == "triton-hopper":
            layer.w13_weight, layer.w2_weight = made[:2]  # TypeError where the parameters still exist
            self.w13_precision_config, self.w2_precision_config = made[2:4]
        else:
            for name, t in zip(names, made):
                setattr(layer, name, Parameter(t, requires_grad=False))
        if made[4] is not None:
            layer.w13_bias = Parameter(made[4], requires_grad=False)
            layer.w2_bias = Parameter(made[5], requires_grad=False)
        self.moe_kernel = Kernel(("kernel", made[2], made[3]))
        self.moe_kernel.fused_experts = EXPERTS[self.mxfp4_backend]()


def globals_of_mxfp4(name):
    return getattr(sys.modules[QUANTIZATION + ".mxfp4"], name)


class GptOssMxfp4MoEMethod(MoeMethod):
    converter_name = "convert_gpt_oss_weight_to_mxfp4_moe_kernel_format"


class Mxfp4MoEMethod(MoeMethod):
    supports_eplb = True
    converter_name = "convert_weight_to_mxfp4_moe_kernel_format"


class GptOssMxfp4Config(QuantizationConfig):
    @classmethod
    def from_config(cls, config):
        assert config["quant_method"] == "mxfp4"
        return cls()

    def get_quant_method(self, layer, prefix):
        return GptOssMxfp4MoEMethod(layer.moe_config) if isinstance(layer, RoutedExperts) else None


class DeepseekV4FP8Config(QuantizationConfig):
    def __init__(self, is_fp8):
        self.is_fp8 = is_fp8

    @classmethod
    def from_config(cls, config):
        return cls("fp8" in config["quant_method"])

    def get_quant_method(self, layer, prefix):
        return Mxfp4MoEMethod(layer.moe_config) if isinstance(layer, RoutedExperts) else "linear"


class RoutedExperts(Module):
    def __init__(self, quant_config, prefix, moe_config, expert_map, swiglu_limit):
        super().__init__()
        self.moe_config, self.expert_map, self.swiglu_limit = moe_config, expert_map, swiglu_limit
        self.global_num_experts = moe_config.num_experts
        self.quant_method = quant_config.get_quant_method(self, prefix)
        h, i = self.quant_method.maybe_roundup_sizes(moe_config.hidden_dim, moe_config.intermediate_size_per_partition,
                                                     torch.bfloat16, moe_config.moe_parallel_config)
        local = moe_config.num_experts if expert_map is None else int((expert_map >= 0).sum())
        self.local_num_experts = local
        self.quant_method.create_weights(layer=self, num_experts=local, hidden_size=h,
                                         intermediate_size_per_partition=i, params_dtype=torch.bfloat16,
                                         weight_loader=None)


current = SimpleNamespace(config=None, model=None)


def vllm_config(**settings):
    get = settings.pop
    config = SimpleNamespace(
        load_config=SimpleNamespace(load_format=get("load_format", "auto")),
        kernel_config=SimpleNamespace(moe_backend=get("moe_backend", "auto")),
        model_config=SimpleNamespace(), dtype=get("dtype", torch.bfloat16), activation=get("activation", "silu"),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8192),
        parallel_config=SimpleNamespace(enable_eplb=get("enable_eplb", False), enable_dbo=get("enable_dbo", False)),
        offload_config=SimpleNamespace(uva=SimpleNamespace(cpu_offload_gb=get("cpu_offload_gb", 0)),
                                       prefetch=SimpleNamespace(offload_group_size=get("offload_group_size", 0))),
        cache_config=SimpleNamespace(), lora_config=get("lora_config", None))
    assert not settings, settings
    return config


def serve(directory, checkpoint, prefixes, tp=(1, 0), expert_map=None, experts=None, swiglu_limit=None,
          has_bias=None, before_processing=lambda layers: None, device="cpu", **settings):
    """One rank's start. Returns its expert layers by prefix; the model is reload.Model `current.model`."""
    with open(os.path.join(directory, "config.json")) as file:
        hf_quant_cfg = json.load(file)["quantization_config"]
    name = hf_quant_cfg["quant_method"]
    for method in methods.values():
        name = method.override_quantization_method(hf_quant_cfg, None, hf_config=None) or name
    if name not in methods:
        raise ValueError(f"Unknown quantization method: {name}")
    quant_config = methods[name].from_config(hf_quant_cfg)
    quant_config.maybe_update_config(directory, hf_config=SimpleNamespace())
    quant_config = pickle.loads(pickle.dumps(quant_config))  # it goes to the workers
    current.config = vllm_config(**settings)
    layers = {}
    with torch.device(device):
        assert quant_config.get_quant_method(Module(), "model.layers.0.attn") in (None, "linear")
        first = next(iter(checkpoint.layers.values()))
        first = first[0] if isinstance(first, list) else first
        for prefix in prefixes:
            parallel = SimpleNamespace(tp_size=tp[0], tp_rank=tp[1], enable_eplb=current.config.parallel_config.enable_eplb)
            count = experts or first["w13", "codes"].shape[0]
            moe = SimpleNamespace(num_experts=count, hidden_dim=checkpoint.hidden, in_dtype=current.config.dtype,
                                  num_local_experts=count if expert_map is None else int((expert_map >= 0).sum()),
                                  experts_per_token=2, activation=SimpleNamespace(value=current.config.activation),
                                  intermediate_size_per_partition=checkpoint.intermediate,
                                  moe_parallel_config=parallel, moe_backend=current.config.kernel_config.moe_backend,
                                  has_bias=("w13", "bias") in first if has_bias is None else has_bias)
            layers[prefix] = RoutedExperts(quant_config, prefix, moe, expert_map, swiglu_limit)
    current.model = reload.Model(layers.values())
    sys.modules["vllm.model_executor.model_loader.utils"].record_metadata_for_reloading(current.model)
    before_processing(layers)
    current.model.load_weights([])
    for layer in layers.values():
        layer.quant_method.process_weights_after_loading(layer)
    return layers


class EplbState:
    @staticmethod
    def build_initial_global_physical_to_logical_map(num_routed_experts, num_redundant_experts):
        return [*range(num_routed_experts), *(i % num_routed_experts for i in range(num_redundant_experts))]


def install():
    """Installs the stand-ins as the modules of vLLM."""
    names = {
        "vllm": {}, "vllm.config": {"get_current_vllm_config": lambda: current.config, "VllmConfig": SimpleNamespace,
                                    "DeviceConfig": SimpleNamespace, "set_current_vllm_config": nullcontext},
        "vllm.model_executor": {}, "vllm.model_executor.utils": {"replace_parameter": setattr,
                                                             "is_weights_pre_processed": lambda: False},
        "vllm.model_executor.layers": {},
        "vllm.model_executor.layers.fused_moe": {"RoutedExperts": RoutedExperts},
        QUANTIZATION: {"register_quantization_config": register_quantization_config,
                       "get_quantization_config": {"deepseek_v4_fp8": DeepseekV4FP8Config}.get},
        QUANTIZATION + ".base_config": {"QuantizationConfig": QuantizationConfig},
        QUANTIZATION + ".mxfp4": {t.__name__: t for t in (
            GptOssMxfp4Config, GptOssMxfp4MoEMethod, Mxfp4MoEMethod, convert_weight_to_mxfp4_moe_kernel_format,
            convert_gpt_oss_weight_to_mxfp4_moe_kernel_format)} | {
                "Mxfp4MoeBackend": Backend,
                "is_weights_pre_processed": lambda: sys.modules["vllm.model_executor.utils"].is_weights_pre_processed()},
    }
    loader = "vllm.model_executor.model_loader"
    names |= {loader: {}} | {f"{loader}.{name}": members for name, members in reload.MODULES.items()}
    routers = "vllm.model_executor.layers.fused_moe.router"
    names |= {routers: {}, routers + ".fused_topk_router": {"fused_topk": fused_topk}}
    names |= {"vllm.distributed": {"get_tensor_model_parallel_world_size": lambda: 1}, "vllm.distributed.eplb": {},
              "vllm.distributed.eplb.eplb_state": {"EplbState": EplbState}}
    golden.install(names)
