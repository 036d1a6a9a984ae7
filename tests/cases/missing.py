"""Checkpoints that lack what their config promises."""

import re

from case import Case, Result, Wrong, convert_and_verify
from checkpoint import added, both, config, mapped, merged, settings, text_settings, without

GPT, V4, CT = "gpt-oss-20b", "deepseek-v4-flash", "qwen3-30b-a3b-ct"
WIDE = ("--intermediate", "128")  # vLLM pads nothing of compressed-tensors


def lacks(kind, instance, model, alter, **more):
    return Case(kind, instance, model, alter, allowed=True, **more)


def layer(instance, model, alter, **more):
    return lacks("a layer is missing", instance, model, alter, **more)


def part(instance, model, alter, **more):
    return lacks("a part of a layer is missing", instance, model, alter, **more)


def whole(instance, model, alter, **more):
    return lacks("embedding, head or last norm is missing", instance, model, alter, **more)


def fewer_rows(name, count):
    """Only the first rows of a tensor."""

    def change(tensors):
        dtype, shape, data = tensors[name]
        tensors[name] = dtype, [count, *shape[1:]], data[: len(data) // shape[0] * count]
        return tensors

    return merged(change)


LAYERS = [
    layer("layer 1 of 4", GPT, without(".layers.1.")),
    layer("layer 2 of 4", V4, without("layers.2.")),
    layer("the last layer", CT, without(".layers.3."), options=WIDE),
    layer("the last two layers", "mimo-v2.6-flash", without(".layers.2.", ".layers.3.")),
    layer("the dense first layer", "kimi-k3", without(".layers.0.")),
    layer("the MTP block", V4, without("mtp.0.")),
    layer("one of three MTP blocks", "deepseek-v4.1-flash", without("mtp.1.")),
    layer("the next-n layer behind the last", "glm-5.2-quark", without(".layers.4.")),
    layer("the config counts six layers", "ling", settings(num_hidden_layers=6)),
]
PARTS = [
    part("attention sinks of layer 1", GPT, without("layers.1.self_attn.sinks")),
    part("a norm of the last layer", "ling", without("layers.3.post_attention_layernorm")),
    part("the output projection's scale in layer 3", V4, without("layers.3.attn.wo_b.scale")),
    part("the router's correction bias in layer 2", "kimi-k2.5-quark", without("layers.2.mlp.gate.e_score")),
    part("the shared expert's gate in the last layer", "qwen3.5-397b-a17b-quark",
        without("layers.3.mlp.shared_expert_gate")),
    part("query norms of all layers", CT, without("self_attn.q_norm"), options=WIDE),
    part("correction biases of all layers", "minimax-m2.7-quark", without("e_score_correction_bias")),
    part("correction biases of all layers", "ling", without("gate.expert_bias")),
    part("a norm of all layers", "qwen3-coder-next-quark", without("post_attention_layernorm")),
    part("an up matrix of the dense layer", "mimo-v2.6-flash", without("layers.0.mlp.up_proj")),
    part("the indexer of one layer", V4, without("layers.2.attn.indexer.weights_proj")),
    part("a matrix of the shared experts in layer 2", "kimi-k3",
        without("layers.2.block_sparse_moe.shared_experts.up_proj")),
    part("shared experts of all layers", "glm-5.2-quark", without("shared_expert")),
    part("norms of all layers", "kimi-k3", without("layernorm")),
    part("attention of all layers", CT, without("self_attn"), options=WIDE),
    part("scales of the dense layer's FP8 matrices", "mimo-v2.6-flash",
        without(*(f"layers.0.mlp.{p}_proj.weight_scale" for p in ("gate", "up", "down")))),
]
WHOLE = [
    whole("the embedding", "ling", without("word_embeddings")),
    whole("the embedding", "kimi-k3", without("embed_tokens")),
    whole("the head", "kimi-k2.5-quark", without("lm_head")),
    whole("the head", V4, without("head.weight")),
    whole("the last norm", "minimax-m2.7-quark", without("model.norm.weight")),
    Case("embedding, head or last norm is missing", "the head, tied to the embedding", CT,
        both(without("lm_head"), settings(tie_word_embeddings=True)), options=WIDE),
    Case("embedding, head or last norm is missing", "the head, tied to the embedding", "kimi-k2.5-quark",
        both(without("lm_head"), settings(tie_word_embeddings=True))),
]


def expert(instance, model, alter, **more):
    return Case("an expert or its router is missing", instance, model, alter, **more)


EXPERTS = [
    expert("expert 7 of the last layer", CT, without("layers.3.mlp.experts.7."), options=WIDE),
    expert("expert 0 of layer 2", "mimo-v2.6-flash", without("layers.2.mlp.experts.0.")),
    expert("down matrices of layer 1's experts", GPT, without("layers.1.mlp.experts.down_proj")),
    expert("scales of one expert in layer 3", "kimi-k3",
        without("layers.3.block_sparse_moe.experts.5.w3.weight_scale")),
    expert("the router of the last layer", "minimax-m2.7-quark", without("layers.3.block_sparse_moe.gate.weight")),
    expert("the config counts 16 experts", "ling", settings(num_experts=16)),
    expert("the config counts 16 experts", "kimi-k2.5-quark", text_settings(n_routed_experts=16)),
]
BIASES = [
    lacks("biases are missing", "expert biases of all layers", GPT, without("gate_up_proj_bias", "down_proj_bias")),
    lacks("biases are missing", "router biases of all layers", GPT, without("router.bias")),
    lacks("biases are missing", "attention biases of all layers", "tiny/gpt-oss",
        without("self_attn.q_proj.bias", "self_attn.k_proj.bias")),
    lacks("biases are missing", "routing biases but layer 0's", V4, without("gate.bias")),
    Case("biases are missing", "down biases of the last layer", GPT, without("layers.3.mlp.experts.down_proj_bias")),
]


def experts_are_there(bench):
    """Refused, and no expert is said to be missing."""
    result = convert_and_verify(bench)
    wrong = [line for line in result.lines if re.search(r"\d experts? missing", line)]
    if wrong:
        raise Wrong(f"says that experts are missing: {wrong}")
    return result


INPUT_SCALE = added(r".*\.experts\.\d+\..*\.weight", ".input_scale", ("F32", [], b"\0\0\x80\x3f"))


def scales(instance, model, alter):
    kind = "static scales of some experts are missing"
    return lacks(kind, instance, model, both(INPUT_SCALE, alter), act=experts_are_there)


SCALES = [
    scales("expert 3 of the last layer", "qwen3.5-397b-a17b-quark",
        without(*(f"layers.3.mlp.experts.3.{p}_proj.input_scale" for p in ("gate", "up", "down")))),
    scales("all experts but one in layer 1", "minimax-m2.7-quark",
        without(*(f"layers.1.block_sparse_moe.experts.{e}.{w}.input_scale"
            for e in (0, 1, 3) for w in ("w1", "w2", "w3")))),
    scales("one projection of one expert", "qwen3-coder-next-quark",
        without("layers.2.mlp.experts.1.up_proj.input_scale")),
    Case("static scales of some experts are missing", "none is missing", "qwen3.5-397b-a17b-quark", INPUT_SCALE),
]
SIZES = [
    lacks("tensors are smaller than the config says", "10 of 64 rows of the embedding", "ling",
        fewer_rows("model.word_embeddings.weight", 10)),
    lacks("tensors are smaller than the config says", "10 of 32 rows of the head", V4, fewer_rows("head.weight", 10)),
    lacks("tensors are smaller than the config says", "half of a norm in the last layer", CT,
        fewer_rows("model.layers.3.input_layernorm.weight", 64), options=WIDE),
    lacks("tensors are smaller than the config says", "half of a router's bias in layer 2", "kimi-k2.5-quark",
        fewer_rows("language_model.model.layers.2.mlp.gate.e_score_correction_bias", 4)),
    lacks("tensors are smaller than the config says", "the config counts 100,000 tokens", "minimax-m2.7-quark",
        config(lambda says: says.update(vocab_size=100000))),
]


def all_said(bench):
    """Refused, each cause in one line; --allow-incomplete changes nothing."""
    result = convert_and_verify(bench)
    said = [line for line in result.lines if line.startswith("error: ")]
    return Result(result.verdict, [" / ".join(said)])


def turned(dtype, shape, data):
    return dtype, [*shape[:-2], shape[-1], shape[-2]], data


def several(model, norm, *more, options=()):
    """Layer 1's scales of down are transposed, layer 2 lacks its norm, the embedding is not there."""
    alter = both(mapped(r"layers\.1\..*down_proj\S*scales?$", turned), without(f"layers.2.{norm}", "embed_tokens"), *more)
    return Case("several causes at once", "in layers, outside of them, in the config", model, alter, options=options, act=all_said)


SEVERAL = [
    several(GPT, "input_layernorm", settings(num_local_experts=5)),
    several(CT, "post_attention_layernorm", settings(num_experts_per_tok="two"), without("layers.3.mlp.experts.2."), options=WIDE),
]
CASES = [*SEVERAL, *LAYERS, *PARTS, *WHOLE, *EXPERTS, *BIASES, *SCALES, *SIZES]
