"""Checkpoints that lack what their config promises."""

import re

from case import Case, Wrong, convert_and_verify
from checkpoint import added, both, config, merged, settings, text_settings, without

GPT, V4, CT = "gpt-oss-20b", "deepseek-v4-flash", "qwen3-30b-a3b-ct"
WIDE = ("--intermediate", "128")  # vLLM pads nothing of compressed-tensors


def lacks(kind, instance, model, alter, message, **more):
    return Case(kind, instance, model, alter, "refused", "^error: .*" + message, allowed=True, **more)


def layer(instance, model, alter, message, **more):
    return lacks("a layer is missing", instance, model, alter, message, **more)


def part(instance, model, alter, message, **more):
    return lacks("a part of a layer is missing", instance, model, alter, message, **more)


def whole(instance, model, alter, message, **more):
    return lacks("embedding, head or last norm is missing", instance, model, alter, message, **more)


def fewer_rows(name, count):
    """Only the first rows of a tensor."""

    def change(tensors):
        dtype, shape, data = tensors[name]
        tensors[name] = dtype, [count, *shape[1:]], data[: len(data) // shape[0] * count]
        return tensors

    return merged(change)


LAYERS = [
    layer(
        "layer 1 of 4", GPT, without(".layers.1."), r"model.layers.1: the layer is missing; .* num_hidden_layers = 4$"
    ),
    layer("layer 2 of 4", V4, without("layers.2."), r"layers.2: the layer is missing"),
    layer("the last layer", CT, without(".layers.3."), r"model.layers.3: the layer is missing", options=WIDE),
    layer(
        "the last two layers",
        "mimo-v2.6-flash",
        without(".layers.2.", ".layers.3."),
        r"model.layers.2-3: 2 layers are missing",
    ),
    layer("the dense first layer", "kimi-k3", without(".layers.0."), r"layers.0: the layer is missing"),
    layer("the MTP block", V4, without("mtp.0."), r"MTP: 1 of 1 layer missing"),
    layer("one of three MTP blocks", "deepseek-v4.1-flash", without("mtp.1."), r"mtp"),
    layer("the next-n layer behind the last", "glm-5.2-quark", without(".layers.4."), r"MTP: 1 of 1 layer missing"),
    layer(
        "the config counts six layers", "ling", settings(num_hidden_layers=6), r"model.layers.4-5: 2 layers are missing"
    ),
]
PARTS = [
    part("attention sinks of layer 1", GPT, without("layers.1.self_attn.sinks"), r"model.layers.1.self_attn.sinks"),
    part("a norm of the last layer", "ling", without("layers.3.post_attention_layernorm"), r"model.layers.3.post_att"),
    part("the output projection's scale in layer 3", V4, without("layers.3.attn.wo_b.scale"), r"layers.3.attn.wo_b"),
    part(
        "the router's correction bias in layer 2",
        "kimi-k2.5-quark",
        without("layers.2.mlp.gate.e_score"),
        r"layers.2.mlp.gate.e_score_correction_bias",
    ),
    part(
        "the shared expert's gate in the last layer",
        "qwen3.5-397b-a17b-quark",
        without("layers.3.mlp.shared_expert_gate"),
        r"layers.3.mlp.shared_expert_gate",
    ),
    part("query norms of all layers", CT, without("self_attn.q_norm"), r"self_attn.q_norm", options=WIDE),
    part("correction biases of all layers", "minimax-m2.7-quark", without("e_score_correction_bias"), r"e_score_corr"),
    part(
        "correction biases of all layers",
        "ling",
        without("gate.expert_bias"),
        r"e_score_correction_bias: missing in 3 of 3 layers",
    ),
    part("a norm of all layers", "qwen3-coder-next-quark", without("post_attention_layernorm"), r"post_attention_lay"),
    part(
        "an up matrix of the dense layer",
        "mimo-v2.6-flash",
        without("layers.0.mlp.up_proj"),
        r"model.layers.\*.mlp.up_proj: missing",
    ),
]
WHOLE = [
    whole("the embedding", "ling", without("word_embeddings"), r"word_embeddings|embed"),
    whole("the embedding", "kimi-k3", without("embed_tokens"), r"the embedding is missing"),
    whole("the head", "kimi-k2.5-quark", without("lm_head"), r"lm_head|head"),
    whole("the head", V4, without("head.weight"), r"head"),
    whole("the last norm", "minimax-m2.7-quark", without("model.norm.weight"), r"model.norm"),
    Case(
        "embedding, head or last norm is missing",
        "the head, tied to the embedding",
        CT,
        both(without("lm_head"), settings(tie_word_embeddings=True)),
        "right",
        options=WIDE,
    ),
    Case(
        "embedding, head or last norm is missing",
        "the head, tied to the embedding",
        "kimi-k2.5-quark",
        both(without("lm_head"), settings(tie_word_embeddings=True)),
        "right",
    ),
]


def expert(instance, model, alter, message, **more):
    return Case("an expert or its router is missing", instance, model, alter, "refused", "^error: .*" + message, **more)


EXPERTS = [
    expert(
        "expert 7 of the last layer",
        CT,
        without("layers.3.mlp.experts.7."),
        r"model.layers.3.mlp.experts: experts 7" r" missing, the router has 8",
        options=WIDE,
    ),
    expert(
        "expert 0 of layer 2", "mimo-v2.6-flash", without("layers.2.mlp.experts.0."), r"model.layers.2.mlp.experts: "
    ),
    expert("down matrices of layer 1's experts", GPT, without("layers.1.mlp.experts.down_proj"), r"model.layers.1.mlp"),
    expert(
        "scales of one expert in layer 3",
        "kimi-k3",
        without("layers.3.block_sparse_moe.experts.5.w3.weight_scale"),
        r"layers.3.block_sparse_moe.experts.5.w3.weight.*: no scales beside it",
    ),
    expert(
        "the router of the last layer",
        "minimax-m2.7-quark",
        without("layers.3.block_sparse_moe.gate.weight"),
        r"model.layers.3.block_sparse_moe",
    ),
    expert(
        "the config counts 16 experts",
        "ling",
        settings(num_experts=16),
        r"config.json: num_experts = 16, but the layers",
    ),
    expert(
        "the config counts 16 experts",
        "kimi-k2.5-quark",
        text_settings(n_routed_experts=16),
        r"config.json: n_routed_experts = 16, but the layers",
    ),
]
BIASES = [
    lacks(
        "biases are missing",
        "expert biases of all layers",
        GPT,
        without("gate_up_proj_bias", "down_proj_bias"),
        r"mlp.experts.gate_up_proj_bias \.\. mlp.experts.down_proj_bias \(2 such\): missing in 4 of 4 layers",
    ),
    lacks(
        "biases are missing", "router biases of all layers", GPT, without("router.bias"), r"mlp.router.bias: missing in"
    ),
    lacks(
        "biases are missing",
        "attention biases of all layers",
        "tiny/gpt-oss",
        without("self_attn.q_proj.bias", "self_attn.k_proj.bias"),
        r"self_attn.q_proj.bias|self_attn.k_proj.bias",
    ),
    lacks("biases are missing", "routing biases but layer 0's", V4, without("gate.bias"), r"gate.bias"),
    Case(
        "biases are missing",
        "down biases of the last layer",
        GPT,
        without("layers.3.mlp.experts.down_proj_bias"),
        "refused",
        r"^error: model.layers.3.mlp.experts.*bias",
    ),
]


def experts_are_there(bench):
    """Refused, and no expert is said to be missing."""
    result = convert_and_verify(bench)
    wrong = [line for line in result.lines if re.search(r"\d experts? missing", line)]
    if wrong:
        raise Wrong(f"says that experts are missing: {wrong}")
    return result


INPUT_SCALE = added(r".*\.experts\.\d+\..*\.weight", ".input_scale", ("F32", [], b"\0\0\x80\x3f"))


def scales(instance, model, alter, message):
    return lacks(
        "static scales of some experts are missing",
        instance,
        model,
        both(INPUT_SCALE, alter),
        message,
        act=experts_are_there,
    )


SCALES = [
    scales(
        "expert 3 of the last layer",
        "qwen3.5-397b-a17b-quark",
        without(*(f"layers.3.mlp.experts.3.{p}_proj.input_scale" for p in ("gate", "up", "down"))),
        r"layers.3.mlp.experts.3.*input_scale",
    ),
    scales(
        "all experts but one in layer 1",
        "minimax-m2.7-quark",
        without(
            *(f"layers.1.block_sparse_moe.experts.{e}.{w}.input_scale" for e in (0, 1, 3) for w in ("w1", "w2", "w3"))
        ),
        r"layers.1.block_sparse_moe.experts.*input_scale",
    ),
    scales(
        "one projection of one expert",
        "qwen3-coder-next-quark",
        without("layers.2.mlp.experts.1.up_proj.input_scale"),
        r"layers.2.mlp.experts.1.up_proj.input_scale",
    ),
    Case(
        "static scales of some experts are missing", "none is missing", "qwen3.5-397b-a17b-quark", INPUT_SCALE, "right"
    ),
]
SIZES = [
    lacks(
        "tensors are smaller than the config says",
        "10 of 64 rows of the embedding",
        "ling",
        fewer_rows("model.word_embeddings.weight", 10),
        r"model.word_embeddings.weight",
    ),
    lacks(
        "tensors are smaller than the config says",
        "10 of 32 rows of the head",
        V4,
        fewer_rows("head.weight", 10),
        r"head.weight",
    ),
    lacks(
        "tensors are smaller than the config says",
        "half of a norm in the last layer",
        CT,
        fewer_rows("model.layers.3.input_layernorm.weight", 64),
        r"model.layers.3.input_layernorm.weight",
        options=WIDE,
    ),
    lacks(
        "tensors are smaller than the config says",
        "half of a router's bias in layer 2",
        "kimi-k2.5-quark",
        fewer_rows("language_model.model.layers.2.mlp.gate.e_score_correction_bias", 4),
        r"layers.2.mlp.gate.e_score",
    ),
    lacks(
        "tensors are smaller than the config says",
        "the config counts 100,000 tokens",
        "minimax-m2.7-quark",
        config(lambda says: says.update(vocab_size=100000)),
        r"vocab_size = 100000",
    ),
]
CASES = [*LAYERS, *PARTS, *WHOLE, *EXPERTS, *BIASES, *SCALES, *SIZES]
