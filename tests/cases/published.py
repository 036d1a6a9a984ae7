"""Forms of published models beyond what synth writes, and configs that contradict the tensors."""

import re

from case import Case
from checkpoint import added, both, config, fused, mapped, merged, renamed, settings, stacked

CT, AUTOROUND, MIMO, V4 = "qwen3-30b-a3b-ct", "qwen3-30b-a3b-autoround", "mimo-v2.6-flash", "deepseek-v4-flash"
WIDE = ("--intermediate", "128")  # vLLM pads nothing of compressed-tensors
DRAFT, FORM, UNKNOWN, ORDER, AGAINST, TURNED = (
    "layers of multi-token prediction are in MXFP4",
    "published names that few checkpoints have",
    "names of MXFP4 tensors are not known",
    "halves that are called pairs",
    "the config contradicts the tensors",
    "codes and scales are transposed",
)


def copied(old, new):
    """A layer's tensors once more, under other names."""

    def change(tensors):
        layer = {n.replace(old, new, 1): t for n, t in tensors.items() if n.startswith(old)}
        assert layer, old
        return {**tensors, **layer}

    return merged(change)


def quantization(**values):
    return config(lambda says: says["quantization_config"].update(values))


def without_key(key):
    def change(says):
        assert says["quantization_config"].pop(key)

    return config(change)


QWENS = both(
    copied("model.layers.3.", "mtp.layers.0."),
    *(copied("model.norm.", f"mtp.{n}.") for n in ("fc", "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")),
)
DRAFTS = [
    Case(DRAFT, "Qwen's mtp.layers.0", "qwen3-coder-next-quark", QWENS),
    Case(DRAFT, "Qwen's mtp.layers.0, by llm-compressor", CT,
        both(QWENS, settings(mtp_num_hidden_layers=1)), options=WIDE),
    Case(DRAFT, "Hy4's model.mtp_layers.0", "hy3-ct",
        both(copied("model.layers.3.", "model.mtp_layers.0."), settings(model_type="hy_v4"))),
]


def together(tensors):
    """DeepSeek-V4's experts of a layer in w13 and w2."""
    out, parts = {}, {}
    for name, tensor in tensors.items():
        m = re.fullmatch(r"(.*\.ffn\.experts)\.(\d+)\.(w[123])\.(weight|scale)", name)
        if m:
            parts.setdefault((m[1], m[4]), {})[int(m[2]), m[3]] = tensor
        else:
            out[name] = tensor
    for (module, suffix), of in parts.items():
        count = 1 + max(e for e, _ in of)
        for target, names in (("w13", ("w1", "w3")), ("w2", ("w2",))):
            pieces = [of[e, w] for e in range(count) for w in names]
            dtype, (rows, columns), _ = pieces[0]
            shape = [count, rows * len(names), columns]
            out[f"{module}.{target}.{suffix}"] = dtype, shape, b"".join(p[2] for p in pieces)
    return out


HF_NAMES = both(
    renamed(r"^(layers|mtp)\.", r"model.\1."),
    renamed(r"\.attn\.", ".self_attn."),
    renamed(r"\.attn_norm\.", ".input_layernorm."),
    renamed(r"\.ffn_norm\.", ".post_attention_layernorm."),
    renamed(r"experts\.(.*)w1\.", r"experts.\1gate_proj."),
    renamed(r"experts\.(.*)w2\.", r"experts.\1down_proj."),
    renamed(r"experts\.(.*)w3\.", r"experts.\1up_proj."),
    renamed(r"\.ffn\.", ".mlp."),
    renamed(r"^embed\.", "model.embed_tokens."),
    renamed(r"^head\.", "lm_head."),
    renamed(r"^(norm\.|hc_head)", r"model.\1"),
    renamed(r"\.scale$", ".weight_scale_inv"),
)
FORMS = [
    Case(FORM, "experts in w13", V4, merged(together)),
    Case(FORM, "Hugging Face's names", V4, HF_NAMES),
]
UNKNOWNS = [
    Case(UNKNOWN, "experts of GPT-OSS one by one", CT, settings(model_type="gpt_oss"), options=WIDE),
    Case(UNKNOWN, "a dot before blocks", "gpt-oss-20b", renamed(r"proj_(blocks|scales|bias)$", r"proj.\1")),
    Case(UNKNOWN, "experts that are called fc1", CT,
        renamed(r"mlp\.experts\.(\d+)\.(\w)\w*_proj", r"moe.expert_\1.\2_fc"), options=WIDE),
    Case(UNKNOWN, "all experts of each projection", CT, merged(stacked), options=WIDE),
]
INTERLEAVED = ("--gate-up", "interleaved")


def ordered(instance, model, alter=both(), options=()):
    return Case(ORDER, instance, model, alter, options=options, convert=INTERLEAVED, inspect=INTERLEAVED)


def turned(dtype, shape, data):
    rows, columns = shape
    return dtype, [columns, rows], b"".join(data[c::columns] for c in range(columns))


AGAINSTS = [
    Case(AGAINST, "bits 8", AUTOROUND, quantization(bits=8), options=WIDE),
    Case(AGAINST, "mxfp4_block_size 16", MIMO, quantization(mxfp4_block_size=16)),
    Case(AGAINST, "no store_dtype", MIMO, without_key("store_dtype")),
    Case(AGAINST, "a router that chooses 16 of 8", CT, settings(num_experts_per_tok=16), options=WIDE),
    Case(AGAINST, "a pattern that ignores layer 1's experts", CT,
        config(lambda says: says["quantization_config"]["ignore"].append(r"re:.*layers\.1\.mlp\.experts.*")),
        options=WIDE),
    Case(AGAINST, "no quantization_config", CT, config(lambda says: says.pop("quantization_config") and says),
        options=WIDE),
    Case(AGAINST, "zero points", CT,
        added(r".*\.experts\.\d+\.up_proj\.weight_packed", ".weight_zero_point", ("U8", [64], bytes(64))), options=WIDE),
]
CASES = [
    *DRAFTS,
    *FORMS,
    *UNKNOWNS,
    ordered("Granite", "granite-4.0-h-small-quark"),
    ordered("Gemma-4's w13", "gemma-4-26b-a4b-ct", merged(fused)),
    *AGAINSTS,
    *(Case(TURNED, "of every expert", model, mapped(r"\.experts\.\d+\.\w+\.weight_(packed|scale)$", turned),
        options=("--hidden", "512", "--intermediate", "128")) for model in (CT, AUTOROUND)),
]
