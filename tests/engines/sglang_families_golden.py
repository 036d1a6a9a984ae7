"""Adds SGLang's rows to testdata/golden/families.json: what its own model classes and weight loaders read from each family.

    MXFP4_PACK=build/mxfp4-pack PYTHONPATH=SGLANG:.. python3 tests/engines/sglang_families_golden.py testdata/golden/families.json

The checkpoints are those of tests/cases/loaded.py. SGLang needs no GPU: its MoE block of a layer with MXFP4 experts is made
in an otherwise empty model class, whose load_weights then gets that block's tensors. The file has the SHA-256 of each
parameter as load_weights leaves it, before the conversion for a kernel, which needs a GPU (sglang_classes.py runs it with
kernels that are compiled for the CPU). w13 is gate's rows, then those of up (GPT-OSS: pairs). The script sets the
server's arguments and the ranks of a single process. SGLang has to be unpacked as a whole: it looks for its kernels' sources.

Three classes do not read their family: HYV3ForCausalLM skips weight_packed, AfmoeForCausalLM finds no scheme for linears
of compressed-tensors, and GraniteMoeHybridForCausalLM calls get_cache_scale, which QuarkConfig does not have. SGLang 0.5.23 reads Inkling in NVFP4 and AutoRound's integers alone, and compressed-tensors' MXFP4
with MXFP8 activations. The plugin replaces none of these methods, so matrix.json has no cells of them.
"""

import argparse
import json
import re
import tempfile
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

import sglang
from golden_block import bench_of, checked, digests, filled, forms, grown, inner, quantization_of, tensors_of_block
from sglang.srt import runtime_context
from sglang.srt.layers.moe.utils import MoeRunnerBackend, initialize_moe_config
from sglang.srt.layers.quantization import QUANTIZATION_METHODS, mxfp4

# quant_method: the runner that its class of experts asks for; others take Marlin's.
RUNNERS = {"quark": MoeRunnerBackend.AITER}
METHODS = QUANTIZATION_METHODS | {"mxfp4": mxfp4.Mxfp4Config}  # SGLang registers the second if it finds a GPU
NAMES = {"w13_weight": "w13_codes", "w13_weight_scale": "w13_scales", "w13_weight_scale_inv": "w13_scales",
         "w2_weight": "w2_codes", "w2_weight_scale": "w2_scales", "w2_weight_scale_inv": "w2_scales",
         "w13_weight_bias": "w13_bias", "w2_weight_bias": "w2_bias"}
# Parts of a quantization_config that SGLang reads or its loader adds, and `synth` does not write.
IN_CONFIG = {"activation_scheme": "dynamic", "packed_modules_mapping": {}, "layer_quant_config": {}, "layer_type_quant_config": {}}
MODELS = "sglang.srt.models."
ONLY_RANK = SimpleNamespace(world_size=1, is_first_rank=True, is_last_rank=True)


def block_class(module, name, **more):
    def make(config, quant, number, prefix):
        cls = getattr(import_module(MODELS + module), name)
        return cls(config=config, quant_config=quant, prefix=prefix, **{numbered(cls): number}, **more)

    return make


def numbered(cls):
    """The name of a block's argument for the layer's number."""
    arguments = cls.__init__.__code__.co_varnames
    return "layer_id" if "layer_id" in arguments else "layer_idx"


# name of a form in loaded.py: (class of the model, path of the block in it, what makes the block)
LOADERS = {
    "GPT-OSS in SGLang": ("gpt_oss.GptOssForCausalLM", "model.layers.0.mlp", block_class("gpt_oss", "GptOssSparseMoeBlock")),
    "DeepSeek-V4 in SGLang": ("deepseek_v4.DeepseekV4ForCausalLM", "model.layers.1.mlp",
                              block_class("deepseek_v2", "DeepseekV2MoE", is_deepseek_v4=True)),
    "Kimi-K3 in SGLang": ("kimi_k3.KimiK3LinearForCausalLM", "model.layers.1.mlp",
                          block_class("kimi_k3", "KimiK3MoE")),
    "MiMo in SGLang": ("mimo_v2.MiMoV2FlashForCausalLM", "model.layers.1.mlp", block_class("mimo_v2", "MiMoV2MoE")),
    "Ling in SGLang": ("bailing_moe_v3.BailingMoeV3ForCausalLM", "model.layers.1.mlp",
                       block_class("bailing_moe_v3", "BailingMoE")),
    "DeepSeek-R1 in SGLang": ("deepseek_v2.DeepseekV3ForCausalLM", "model.layers.1.mlp",
                              block_class("deepseek_v2", "DeepseekV2MoE")),
    "MiniMax-M2.5 in SGLang": ("minimax_m2.MiniMaxM2ForCausalLM", "model.layers.0.block_sparse_moe",
                               block_class("minimax_m2", "MiniMaxM2MoE")),
}

# The class around that of the first column, if it renames the tensors first.
OUTER = {"Kimi-K3 in SGLang": "kimi_k3.KimiK3ForConditionalGeneration"}


def config_of(form, folder):
    """With the defaults of the engine's own class, if the model's code needs them."""
    says = inner(json.loads((folder / "config.json").read_text())) | forms.ENGINE_SAYS.get(form, {})
    if says["model_type"] == "kimi_linear":
        from sglang.srt.configs.kimi_linear import KimiLinearConfig
        return KimiLinearConfig(**says)
    return SimpleNamespace(**says, dtype=torch.bfloat16)


def quant_config_of(says, config):
    """SGLang's own config for a quantization_config, with what its loader adds to FP8's (ModelConfig.is_fp4_experts)."""
    if says["quant_method"] == "quark":  # SGLang asks for it, `synth` does not write it
        says["global_quant_config"]["input_tensors"]["scale_format"] = "e8m0"
    quant = METHODS[says["quant_method"]].from_config(IN_CONFIG | says)
    quant.is_fp4_experts = says["quant_method"] == "fp8"
    quant.is_dsv4_fp4_experts = config.model_type == "deepseek_v4"
    return quant


def empty(path):
    """A model without any module."""
    module, _, name = path.rpartition(".")
    cls = getattr(import_module(MODELS + module), name)
    model = cls.__new__(cls)
    nn.Module.__init__(model)
    return model


def bare(path, config, quant):
    """An empty model with the attributes that load_weights reads. Its work on attention afterwards is left out."""
    model = empty(path)
    model.config, model.quant_config, model.pp_group = config, quant, ONLY_RANK
    model.num_fused_shared_experts, model.wo_a_fp8, model._is_multimodal = 0, False, False
    model.post_load_weights = model._prewarm_mhc_kernels = lambda **_: None
    model.add_module("model", nn.Module())
    model.model.layers = nn.ModuleList()
    model.model.start_layer, model.model.end_layer = 0, config.num_hidden_layers
    return model


def around(form, model):
    """A model whose language model is this one."""
    whole = empty(OUTER[form])
    whole.config, whole.language_model = SimpleNamespace(language_only=True), model
    return whole


def loaded(form, folder):
    """The parameters of the engine's layer."""
    path, place, make = LOADERS[form]
    config, says = config_of(form, folder), quantization_of(folder)
    quant = quant_config_of(says, config)
    runtime_context.get_flags().moe.runner_backend = RUNNERS.get(says["quant_method"], MoeRunnerBackend.MARLIN)
    model = bare(path, config, quant)
    experts = grown(model, place, make(config, quant, int(re.search(r"layers\.(\d+)", place)[1]), place)).experts
    filled(experts)
    whole = around(form, model) if form in OUTER else model
    whole.load_weights(iter(tensors_of_block(place, folder).items()))
    made = {NAMES[n]: p.data for n, p in experts.named_parameters()}
    return type(whole).__name__, checked(form, {n: t for n, t in made.items() if experts.with_bias or "bias" not in n})


def started():
    """The state of a server's only process."""
    runtime_context.get_context().override_server_args(device="cpu", moe_runner_backend="marlin").install()
    parallel = runtime_context.get_parallel()
    ranks = "tp_rank", "pp_rank", "attn_cp_rank", "moe_dp_rank", "moe_ep_rank", "moe_tp_rank", "attn_dcp_rank"
    parallel.override_permanently(**dict.fromkeys(ranks, 0))
    initialize_moe_config()
    torch.set_default_dtype(torch.bfloat16)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    o = parser.parse_args()
    rows = json.loads(o.file.read_text())
    started()
    with tempfile.TemporaryDirectory() as work:
        for form in (form for form in LOADERS if o.only in form):
            bench = bench_of(form, Path(work) / re.sub(r"\W", "_", form))
            name, tensors = loaded(form, bench.ckpt)
            rows[form] = {"engine": f"sglang {sglang.__version__}", "class": name, **digests(tensors)}
            print(form, name, {n: list(t.shape) for n, t in tensors.items()}, flush=True)
    o.file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
