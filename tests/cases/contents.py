"""Weights that cannot be meant: zeros, NaN and infinity."""

from case import Case
from checkpoint import both, nothing, numbers, zeros_to_the_end

CT = "qwen3-30b-a3b-ct"
WIDE = ("--intermediate", "128")  # vLLM pads nothing of compressed-tensors
LARGE = ("--layers", "2", "--hidden", "1024", "--intermediate", "1024", "--vocab", "4096")


def found(kind, instance, model, alter, **more):
    return Case(kind, instance, model, alter, seen="contents", allowed=True, **more)


def zeros(instance, model, alter, **more):
    return found("zeros in place of weights", instance, model, alter, **more)


def odd(instance, model, what, tensor, **more):
    return found("NaN or infinity", instance, model, numbers(what, tensor), **more)


ZEROS = [
    zeros("codes of expert 5 in layer 2", "ling", numbers("zeros", "layers.2.mlp.experts.5.down_proj.weight")),
    zeros("scales of expert 2 in the last layer", "gpt-oss-20b",
        numbers("zeros", "layers.3.mlp.experts.down_proj_scales@2")),
    zeros("a norm of the last layer", CT, numbers("zeros", "layers.3.post_attention_layernorm"), options=WIDE),
    zeros("the last norm", "kimi-k3", numbers("zeros", "model.norm.weight")),
    zeros("norms of all layers", "mimo-v2.6-flash", numbers("zeros", "input_layernorm")),
    zeros("the whole last layer", "minimax-m2.7-quark", numbers("zeros", "layers.3.")),
    zeros("a router in the middle", "qwen3.5-397b-a17b-quark", numbers("zeros", "layers.1.mlp.gate.weight")),
    zeros("an expert of an MTP block", "deepseek-v4-flash", numbers("zeros", "mtp.0.ffn.experts.1.w2.weight")),
    zeros("the second shard's last 100,000 bytes", "kimi-k2.5-quark", zeros_to_the_end(1, 100_000)),
    zeros("the shard's last 300,000 bytes", "gpt-oss-20b", zeros_to_the_end(-1, 300_000), options=LARGE),
    zeros("200,000 bytes within an expert", "deepseek-v4-flash",
        numbers("zeros", "layers.1.ffn.experts.2.w1.weight:100000-300000"), options=LARGE),
    zeros("three matrices of experts", "deepseek-v4-flash", numbers("zeros", "layers.1.ffn.experts.0.w2.weight",
        "layers.3.ffn.experts.1.w1.weight", "layers.3.ffn.experts.1.w3.weight")),
    zeros("two norms", "deepseek-v4-flash", numbers("zeros", "layers.0.attn_norm", "layers.1.attn_norm")),
    zeros("the embedding", "kimi-k3", numbers("zeros", "embed_tokens.weight")),
    zeros("a table of experts", "deepseek-v4-flash", numbers("zeros", "layers.0.ffn.gate.tid2eid")),
    zeros("bytes within a matrix", "gpt-oss-20b", numbers("zeros", "layers.1.self_attn.o_proj.weight:50001-120002"),
        options=LARGE),
    zeros("bytes within codes", "gpt-oss-20b",
        numbers("zeros", "layers.1.mlp.experts.gate_up_proj_blocks:300003-700001"), options=LARGE),
    zeros("bytes within scales", "gpt-oss-20b", numbers("zeros", "layers.1.mlp.experts.down_proj_scales:10007-20005"),
        options=LARGE),
    zeros("bytes within two norms", "gpt-oss-20b",
        numbers("zeros", "model.norm.weight:400-1000", "layers.1.input_layernorm.weight:1024-2048"), options=LARGE),
    zeros("bytes within the embedding", "gpt-oss-20b", numbers("zeros", "embed_tokens:1000001-3000001"), options=LARGE),
    Case("zeros in place of weights", "rows of an expert", "gpt-oss-20b",
        numbers("zeros", f"layers.1.mlp.experts.gate_up_proj_blocks:{100 * 512}-{400 * 512}"), options=LARGE,
        seen="contents"),
    Case("zeros in place of weights", "rows of unused tokens", "gpt-oss-20b",
        both(numbers("zeros", f"embed_tokens:{3100 * 2048}-{4096 * 2048}"),
            numbers("zeros", f"lm_head:{4000 * 2048}-{4096 * 2048}")), options=LARGE),
    Case("zeros in place of weights", "none, of larger tensors", "gpt-oss-20b", nothing, options=LARGE),
    Case("zeros in place of weights", "a norm that is centred on zero", "qwen3-coder-next-quark",
        numbers("zeros", "layers.1.input_layernorm.weight")),
    Case("zeros in place of weights", "biases, which may be zero", "ling", numbers("zeros", "gate.expert_bias")),
    Case("zeros in place of weights", "biases and sinks, which may be zero", "gpt-oss-20b",
        numbers("zeros", "q_proj.bias", "sinks", "down_proj_bias")),
]
ODD = [
    odd("NaN in the embedding", "mimo-v2.6-flash", "nan", "embed_tokens"),
    odd("NaN in an F32 bias of the last layer", "ling", "nan", "layers.3.mlp.gate.expert_bias"),
    odd("infinity in a router in the middle", "qwen3.5-397b-a17b-quark", "inf", "layers.2.mlp.gate.weight"),
    odd("minus infinity in norms of all layers", "kimi-k3", "-inf", "routed_expert_norm"),
    odd("NaN in an expert's bias of the last layer", "gpt-oss-20b", "nan", "layers.3.mlp.experts.gate_up_proj_bias"),
    odd("NaN in an attention bias", "gpt-oss-20b", "nan", "layers.1.self_attn.q_proj.bias"),
    found("NaN or infinity", "NaN in two norms", "deepseek-v4-flash",
        numbers("nan", "layers.0.attn_norm.weight", "layers.2.ffn_norm.weight")),
    odd("infinity in the head", "gpt-oss-20b", "inf", "lm_head.weight"),
    odd("minus infinity in an expert's bias", "gpt-oss-20b", "-inf", "layers.3.mlp.experts.down_proj_bias"),
    odd("minus infinity in the embedding", "deepseek-v4-flash", "-inf", "embed.weight"),
    Case("NaN or infinity", "minus infinity in a router's bias, which forbids an expert", "gpt-oss-20b",
        numbers("-inf", "layers.2.mlp.router.bias")),
]
CASES = [*ZEROS, *ODD]
