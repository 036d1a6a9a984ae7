"""Runs an engine's own choice of kernels on a machine without a GPU that appears to have one. The results are the rows
`chosen` of matrix.json, which tests/unit/src/backends/choosers_test.cpp compares with the program's rules.

    PYTHONPATH=SOURCES:tests/loaders python3 tests/engines/choosers.py vllm|sglang|gfx942|gfx950

gfx942 and gfx950 run vLLM for these GPUs, with VLLM_ROCM_USE_AITER=1. The GPU and the installed libraries are faked:
all libraries that the engine pins, and vLLM's own kernels that query its compiled code (CUTLASS's MXFP4: SM100 to
SM120). vLLM's chooser runs again without each kernel that it found, until it finds none. The sequence is the row's
`order`. Emulation needs amd-quark from 0.28.0 on, which vLLM does not install, and is included for Quark only. SGLang's
chooser returns one runner, or none ("unset"). On gfx950 it runs with SGLANG_USE_AITER=1 and may return "auto", for
which its methods use AITER."""

import importlib
import os
import pkgutil
import sys
from importlib import util
from types import SimpleNamespace

import torch

import cells

# Models that a release does not have.
ABSENT = {"0.26.0": ("deepseek-v4.1", "kimi-k3", "mimo", "ling"), "0.27.1": ("deepseek-v4.1", "ling"),
          "0.28.0": ("deepseek-v4.1",), "0.29.0": ("deepseek-v4.1",)}
QUANTIZATION = "vllm.model_executor.layers.quantization."
# Families whose method takes a kernel itself: its module and class.
METHODS = {"compressed-tensors": ("compressed_tensors.compressed_tensors_moe.compressed_tensors_moe_w4a4_mxfp4",
                                  "CompressedTensorsW4A4Mxfp4MoEMethod"),
           "auto-round": ("inc.schemes.inc_mxfp4_moe", "INCMxfp4MoEMethod")}
GPUS = {"sm80": (8, 0), "sm90": (9, 0), "sm100": (10, 0), "sm120": (12, 0)}


def replace_everywhere(package, functions):
    """In every module that has them under these names."""
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            for function in functions:
                if function in vars(module):
                    setattr(module, function, functions[function])


def has_method(family):
    try:
        return util.find_spec(QUANTIZATION + METHODS[family][0]) is not None
    except ModuleNotFoundError:
        return False


def quantised(oracle):
    """Whether Humming quantises activations for a model that requests MXFP8, such as DeepSeek-V4 in its
    quant_config.py."""
    if not hasattr(oracle, "_humming_input_schema"):
        return False
    schema = oracle._humming_input_schema(oracle.kMxfp8Dynamic)
    return schema is not None and schema.a_dtype.num_bits == 8


def cuda_platform():
    from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum

    class Cuda(Platform):
        _enum, device_name, device_type, dispatch_key = PlatformEnum.UNSPECIFIED, "cuda", "cuda", "CUDA"
        capability = (9, 0)

        @classmethod
        def get_device_capability(cls, device_id=0):
            return DeviceCapability(*cls.capability)

        @classmethod
        def support_deep_gemm(cls):  # as vllm/platforms/cuda.py
            return cls.capability[0] in (9, 10, 12)

        @classmethod
        def supports_mx(cls):
            return False

    return Cuda()


def rocm_platform(gpu):
    """vLLM's own platform, which gets the GPU's name from torch if amdsmi is missing."""
    os.environ["VLLM_ROCM_USE_AITER"] = "1"
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(gcnArchName=gpu)
    torch.cuda.get_device_capability = lambda *_: (9, int(gpu[4]))
    from vllm.platforms.rocm import RocmPlatform
    return RocmPlatform()


def vllm_rows(gpu=None):
    """Of all GPUS, or of one AMD GPU."""
    import vllm.platforms as platforms
    platform = rocm_platform(gpu) if gpu else cuda_platform()
    platforms.current_platform = platform
    import vllm
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.config import (FusedMoEConfig, FusedMoEParallelConfig,
                                                             RoutingMethodType)
    from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle
    parallel = FusedMoEParallelConfig(tp_size=1, pcp_size=1, dp_size=1, ep_size=1, tp_rank=0, pcp_rank=0, dp_rank=0,
                                      ep_rank=0, sp_size=1, use_ep=False, all2all_backend="naive", enable_eplb=False)

    def config_of(family):
        pairs = family == "gpt-oss"
        activation = {"gpt-oss": "SWIGLUOAI", "kimi-k3": "SITU"}.get(family, "SILU")
        routing = {"gpt-oss": "Renormalize", "deepseek-v4": "DeepseekV4", "deepseek-v4.1": "DeepseekV4"}
        own = {} if pairs or family == "kimi-k3" else {"swiglu_limit": 10.0}
        return FusedMoEConfig(num_experts=32, experts_per_token=4, hidden_dim=2880 if pairs else 4096,
                              intermediate_size=2880 if pairs else 2048, num_local_experts=32, num_logical_experts=32,
                              activation=getattr(MoEActivation, activation), device="cpu",
                              routing_method=getattr(RoutingMethodType, routing.get(family, "DeepSeekV3")),
                              moe_parallel_config=parallel, in_dtype=torch.bfloat16, has_bias=pairs,
                              **{k: v for k, v in own.items() if k in FusedMoEConfig.__dataclass_fields__})

    select_gpt_oss = getattr(oracle, "select_gpt_oss_mxfp4_moe_backend", None) or oracle.select_mxfp4_moe_backend
    select_other = getattr(oracle, "select_deepseek_v4_mxfp4_moe_backend", None) or oracle.select_mxfp4_moe_backend
    classes = oracle.backend_to_kernel_cls
    oracle._user_moe_activation_override = lambda: None

    def select(family):
        if family == "quark":
            return oracle.select_mxfp4_moe_backend(config_of(family), activation_key=oracle.kMxfp4Dynamic)
        return (select_gpt_oss if family == "gpt-oss" else select_other)(config_of(family))

    def of_method(family):
        """The method takes one kernel and asks nobody."""
        module, name = METHODS[family]
        method = getattr(importlib.import_module(QUANTIZATION + module), name)(config_of(family))
        return [{"MarlinExperts": "MARLIN", "CutlassExpertsMxfp4": "CUTLASS_MXFP4_MXFP4"}[method.experts_cls.__name__]]

    def order(family):
        if family in METHODS:
            return of_method(family)
        found = []
        oracle.backend_to_kernel_cls = lambda member: [] if member in found else classes(member)
        while True:
            try:
                member, _ = select(family)
            except (NotImplementedError, ValueError):  # 0.26.0 raises the second on AMD
                names = [m.name for m in found if m.name != "EMULATION" or family == "quark"]
                if family.startswith("deepseek") and "HUMMING" in names and quantised(oracle):
                    names[names.index("HUMMING")] = "HUMMING_W4A8"
                return names
            found.append(member)

    for member in oracle.Mxfp4MoeBackend:  # imports what holds the kernels' classes
        try:
            classes(member)
        except (ImportError, ValueError, AttributeError, NotImplementedError):
            pass
    always = {name: lambda: True for name in (
        "has_humming", "has_deep_gemm", "has_triton_kernels", "has_flashinfer", "has_flashinfer_cutlass_fused_moe",
        "has_flashinfer_trtllm_fused_moe", "has_flashinfer_situ_activation")}
    from vllm import _custom_ops
    _custom_ops.mxfp4_experts_quant_supported = lambda capability: 100 <= capability <= 121
    if gpu:
        aiter = importlib.import_module("vllm._aiter_ops")
        aiter.IS_AITER_FOUND = True
    else:
        replace_everywhere("vllm.", always | {"is_deep_gemm_supported": platform.support_deep_gemm})
        type(platform)._enum = platforms.PlatformEnum.CUDA
    rows = []
    for family in ("gpt-oss", "deepseek-v4", "deepseek-v4.1", "kimi-k3", "mimo", "ling", "quark", *METHODS):
        if family in ABSENT.get(vllm.__version__, ()) or family in METHODS and (gpu or not has_method(family)):
            continue
        for name, capability in {gpu: None}.items() if gpu else GPUS.items():
            if not gpu:
                type(platform).capability = capability
            rows.append({"engine": "vllm", "version": vllm.__version__, "family": family, "gpu": name,
                         "order": order(family)})
    return rows


PROVIDERS = {"gpt-oss": ["_gpt_oss_overrides"], "kimi-k3": ["_kimi_k3_moe_runner_overrides"],
             "deepseek-v4": ["_deepseek_v4_overrides", "_deepseek_v4_sm120_moe"], "mimo": ["_mimo_v2_overrides"],
             "ling": ["_bailing_moe_v3_overrides"]}
ARCHITECTURES = {"gpt-oss": "GptOssForCausalLM", "deepseek-v4": "DeepseekV4ForCausalLM", "mimo": "MiMoV2ForCausalLM",
                 "kimi-k3": "KimiK3ForConditionalGeneration", "ling": "BailingMoeV3ForCausalLM"}


def sglang_functions():
    from sglang.srt import arg_groups
    from sglang.srt.arg_groups import overrides
    modules = [overrides]
    folder = "sglang.srt.arg_groups.model_overrides"
    if util.find_spec(folder):
        package = importlib.import_module(folder)
        modules += [importlib.import_module(f"{folder}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    return {name: f for module in modules for name, f in vars(module).items() if callable(f)}


def sglang_rows():
    import sglang
    functions = sglang_functions()
    rows = []
    for family, names in PROVIDERS.items():
        quantization = {"quant_method": "mxfp4" if family == "gpt-oss" else "fp8", "format": "mxfp4-pack-quantized",
                        "config_groups": {"group_0": {"format": "mxfp4-pack-quantized"}}}
        hf_config = SimpleNamespace(architectures=[ARCHITECTURES[family]], quantization_config=quantization,
                                    model_type=family)
        model = SimpleNamespace(hf_config=hf_config, is_fp4_experts=True, nvfp4_moe_meta=None, quantization="fp8")
        if not any(name in functions for name in names):
            continue
        for gpu, (major, minor) in {**GPUS, "gfx950": (0, 0)}.items():
            os.environ["SGLANG_USE_AITER"] = str(major == 0)
            platform = SimpleNamespace(is_sm90=major == 9, is_sm100=major == 10, is_sm120=major == 12, is_hip=major == 0,
                                       is_xpu=False, is_musa=False, is_blackwell=major >= 10, has_amx=False,
                                       device_sm=major * 10 + minor)
            arguments = SimpleNamespace(moe_runner_backend="auto", moe_a2a_backend="none", device="cuda", ep_size=1,
                                        quantization=None, dtype="auto", speculative_algorithm=None,
                                        attention_backend="x", prefill_attention_backend="x",
                                        decode_attention_backend="x", swa_full_tokens_ratio=1,
                                        fp8_gemm_runner_backend="auto", get_model_config=lambda: model,
                                        is_attention_backend_not_set=lambda: False)
            is_it = {"is_sm90_supported": platform.is_sm90, "is_sm100_supported": platform.is_sm100,
                     "is_sm120_supported": platform.is_sm120, "is_blackwell_supported": platform.is_blackwell,
                     "is_hip": platform.is_hip, "is_xpu": False, "is_musa": False, "is_npu": False, "is_cpu": False,
                     "is_triton_kernels_available": True, "is_attention_backend_not_set": False}
            fakes = {name: lambda *_, value=value: value for name, value in is_it.items()}
            fakes |= {"get_platform": lambda: platform, "resolving_view": lambda given: given,
                      "model_config_of": lambda _: model, "get_device_sm": lambda: platform.device_sm,
                      "get_nvidia_driver_version": lambda: (580,)}
            replace_everywhere("sglang.srt.arg_groups", fakes)
            if "sglang.kernels.ops.moe.trtllm_gen_moe" not in sys.modules:
                sys.modules["sglang.kernels.ops.moe.trtllm_gen_moe"] = SimpleNamespace(available=lambda: True)
            said = {}
            for name in names:
                if name in functions:
                    both = (arguments, hf_config) if name.endswith("_overrides") else (arguments,)
                    said |= functions[name](*both)
            rows.append({"engine": "sglang", "version": sglang.__version__, "family": family, "gpu": gpu,
                         "order": [said.get("moe_runner_backend", "unset")]})
    return rows


if __name__ == "__main__":
    asked = sys.argv[1]
    for row in sglang_rows() if asked == "sglang" else vllm_rows(None if asked == "vllm" else asked):
        cells.record(row)
