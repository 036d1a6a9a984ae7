"""Makes testdata/golden/families.json: what an engine's own model class and weight loader read from each family.

    MXFP4_PACK=build/mxfp4-pack PYTHONPATH=VLLM:.. python3 tests/engines/families_golden.py testdata/golden/families.json

The checkpoints are those of tests/cases/loaded.py. vLLM needs no GPU: its MoE block of the first layer with MXFP4 experts
is made in an otherwise empty model class, whose load_weights then gets that block's tensors. The file has the SHA-256 of
each parameter before the engine converts it for a kernel: w13 is gate's rows, then those of up (GPT-OSS: pairs).
Exchanged are only what asks for a GPU: the choice of a kernel, events, the architecture. No class of vLLM 0.33.0 reads
Gemma-4's w13_weight, nor gate_up_proj.weight_packed; Muse Spark's reads NVFP4, or takes a method of its own on ROCm. Forms that
differ in their config alone have the tensors of compression_config.
"""

import argparse
import json
import re
import tempfile
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from torch import nn

import vllm
from vllm.config import DeviceConfig, VllmConfig, get_current_vllm_config, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.fused_moe import FusedMoEFactory, RoutedExperts
from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle
from vllm.model_executor.layers.quantization import get_quantization_config

from golden_block import bench_of, checked, digests, filled, forms, grown, inner, quantization_of, tensors_of_block

# override_quantization_method names both so, but the second of model type gpt_oss alone: under "mxfp4" the privacy filter
# gets the method of DeepSeek-V4, whose weight loader then raises.
METHODS = {"auto-round": "inc", "mxfp4": "gpt_oss_mxfp4"}
MARLIN = oracle.Mxfp4MoeBackend.MARLIN
NAMES = {"w13_weight": "w13_codes", "w13_weight_packed": "w13_codes", "w13_weight_scale": "w13_scales",
         "w2_weight": "w2_codes", "w2_weight_packed": "w2_codes", "w2_weight_scale": "w2_scales",
         "w13_bias": "w13_bias", "w2_bias": "w2_bias"}
MODELS = "vllm.model_executor.models."

def block_class(module, name):
    return lambda config, quant, prefix: getattr(import_module(module), name)(config=config, quant_config=quant, prefix=prefix)


def bare_experts(key, **more):
    """The block of a model class that makes it within its decoder layer, with the same arguments."""

    def make(config, quant, prefix):
        block = nn.Module()
        block.experts = FusedMoEFactory(
            num_experts=getattr(config, key), top_k=2, hidden_size=config.hidden_size,
            intermediate_size=getattr(config, "moe_intermediate_size", None) or config.intermediate_size,
            renormalize=True, quant_config=quant, prefix=f"{prefix}.experts", **more)
        return block

    return make


def longcat(config, quant, prefix):
    from vllm.model_executor.models.longcat_flash import LongcatMoe
    return LongcatMoe(config=config, num_experts=config.n_routed_experts, top_k=config.moe_topk,
                      hidden_size=config.hidden_size, intermediate_size=config.expert_ffn_hidden_size,
                      quant_config=quant, prefix=prefix)


def granite(config, quant, prefix):
    from vllm.model_executor.models.granitemoe import GraniteMoeMoE
    return GraniteMoeMoE(num_experts=config.num_local_experts, top_k=2, hidden_size=config.hidden_size,
                         intermediate_size=config.intermediate_size, quant_config=quant, prefix=prefix)


def inkling(kind):
    def make(config, quant, prefix):
        moe = import_module(f"vllm.models.inkling.{kind}.moe")
        return moe.InklingMoE(config, quant_config=quant, prefix=prefix)

    return make


# The class of the model within that of the first column, if it loads the layers.
INNER = {"Gemma-4": "Gemma4Model", "Gemma-4's gate_up_proj": "Gemma4Model", "privacy filter": "OpenAIPrivacyFilterModel"}
QWEN = MODELS + "qwen3_moe.Qwen3MoeModel", "layers.0.mlp", bare_experts("num_experts")
# name of a form in loaded.py: (model class, path of the block in it, what makes the block)
LOADERS = {
    "Hy3": (MODELS + "hy_v3.HYV3Model", "layers.1.mlp", block_class(MODELS + "hy_v3", "HYV3MoEFused")),
    "AFMoE": (MODELS + "afmoe.AfmoeForCausalLM", "model.layers.1.mlp", block_class(MODELS + "afmoe", "AfmoeMoE")),
    "LongCat": (MODELS + "longcat_flash.FlashModel", "layers.0.mlp", longcat),
    "Gemma-4": (MODELS + "gemma4.Gemma4ForCausalLM", "model.layers.0", bare_experts("num_experts", activation="gelu_tanh")),
    "Gemma-4's gate_up_proj": (MODELS + "gemma4.Gemma4ForCausalLM", "model.layers.0",
                               bare_experts("num_experts", activation="gelu_tanh")),
    "Granite": (MODELS + "granitemoehybrid.GraniteMoeHybridModel", "layers.0.block_sparse_moe", granite),
    "Inkling by Quark": ("vllm.models.inkling.amd.model.InklingForCausalLM", "model.layers.1.mlp", inkling("amd")),
    "Inkling by AutoRound": ("vllm.models.inkling.nvidia.model.InklingForCausalLM", "model.layers.0.mlp", inkling("nvidia")),
    "privacy filter": (MODELS + "openai_privacy_filter.OpenAIPrivacyFilterForTokenClassification", "model.layers.0.mlp",
                       bare_experts("num_local_experts", has_bias=True, activation="swigluoai")),
    "AutoRound": QWEN,
    "compression_config": QWEN,
    "gate_up_proj_packed": QWEN,
}


def bare(cls, config, quant):
    """A model without any module."""
    model = cls.__new__(cls)
    nn.Module.__init__(model)
    model.config, model.quant_config = config, quant
    model.parallel_config = get_current_vllm_config().parallel_config
    if "gemma4" in cls.__module__ and cls.__name__ == "Gemma4Model":
        from vllm.model_executor.models.gemma4 import _gemma4_layer_weights_mapper
        model.hf_to_vllm_mapper = _gemma4_layer_weights_mapper(config)
    return model


def experts_of(block):
    return next(m for m in block.modules() if isinstance(m, RoutedExperts))


def config_of(form, folder):
    """With the defaults of the engine's own class, if it has one."""
    says = inner(json.loads((folder / "config.json").read_text())) | forms.ENGINE_SAYS.get(form, {})
    if form.startswith("Inkling"):
        from vllm.models.inkling.configs import InklingModelConfig
        return InklingModelConfig(**says)
    return SimpleNamespace(**says)


def quant_config_of(says):
    """The engine's own config for a quantization_config."""
    method = says["quant_method"]
    quant = get_quantization_config(METHODS.get(method, method)).from_config(says)
    quant.packed_modules_mapping = {}
    return quant


def empty_model(form, config, quant):
    """(the engine's model with nothing but the block, the block)"""
    path, place, make = LOADERS[form]
    module, _, name = path.rpartition(".")
    model = bare(getattr(import_module(module), name), config, quant)
    if form in INNER:
        model.add_module("model", bare(getattr(import_module(module), INNER[form]), config, quant))
    return model, grown(model, place, make(config, quant, place if place.startswith("model.") else f"model.{place}"))


def loaded(form, folder):
    """The parameters of the engine's layer."""
    model, block = empty_model(form, config_of(form, folder), quant_config_of(quantization_of(folder)))
    experts = experts_of(block)
    filled(experts)
    model.load_weights(iter(tensors_of_block(LOADERS[form][1], folder).items()))
    made = {NAMES[n]: p.data for n, p in experts.named_parameters() if n in NAMES}
    return type(model).__name__, checked(form, made)


def as_on_a_gpu(stack):
    """What asks for a GPU when modules are made: the choice of a kernel, events, the architecture on ROCm."""
    from vllm.model_executor.layers.quantization import mxfp4
    from vllm.model_executor.layers.quantization.quark import quark_moe
    for module in (mxfp4, quark_moe):
        if hasattr(module, "select_mxfp4_moe_backend"):
            stack.enter_context(mock.patch.object(module, "select_mxfp4_moe_backend", lambda *a, **b: (MARLIN, None)))
    stack.enter_context(mock.patch.object(torch.cuda, "Event", mock.Mock))
    gfx950 = SimpleNamespace(gcnArchName="gfx950", major=9, minor=5, multi_processor_count=256)
    stack.enter_context(mock.patch.object(torch.cuda, "get_device_properties", lambda *a: gfx950))


def on_cpu(hf_config=None):
    config = VllmConfig(device_config=DeviceConfig(device="cpu"))
    config.model_config = SimpleNamespace(hf_config=hf_config, dtype=torch.bfloat16) if hf_config else None
    return set_current_vllm_config(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    o = parser.parse_args()
    rows = json.loads(o.file.read_text()) if o.file.exists() else {}
    torch.set_default_dtype(torch.bfloat16)
    with tempfile.TemporaryDirectory() as work:
        with on_cpu():
            init_distributed_environment(1, 0, f"file://{work}/rendezvous", 0, "gloo")
            initialize_model_parallel(1)
        for form in LOADERS:
            if o.only not in form:
                continue
            print(form, flush=True)
            bench = bench_of(form, Path(work) / re.sub(r"\W", "_", form))
            with on_cpu(config_of(form, bench.ckpt)), ExitStack() as stack:
                as_on_a_gpu(stack)
                name, tensors = loaded(form, bench.ckpt)
            rows[form] = {"engine": f"vllm {vllm.__version__}", "class": name, **digests(tensors)}
            print(form, name, {n: list(t.shape) for n, t in tensors.items()}, flush=True)
    o.file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
