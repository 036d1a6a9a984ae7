"""Tensors and configs whose meaning is not obvious."""

import re

from case import Case, Wrong, convert_and_verify, lines_of
from checkpoint import both, config, fused, in_words, mapped, merged, nested, renamed, settings

CT = "qwen3-30b-a3b-ct"
WIDE = ("--intermediate", "128")  # vLLM pads nothing of compressed-tensors
ROWS, OTHER, NESTED, ROUTER = (
    "the order of gate and up rows is not said",
    "experts are not MXFP4",
    "sizes in a nested config",
    "routers are quantized",
)
ONCE = "one cause repeats in many tensors"


def type_of(name, **more):
    return settings(model_type=name, **more)


HALVES, PAIRS = ("--gate-up", "concatenated"), ("--gate-up", "interleaved")
ORDER = [
    Case(ROWS, "w13 of all experts, model type inkling", CT, both(merged(fused), type_of("inkling")), options=WIDE),
    Case(ROWS, "w13 of all experts, no model type", "mimo-v2.6-flash", both(merged(fused), type_of(""))),
    Case(ROWS, "*_blocks, model type my_moe", "gpt-oss-20b", type_of("my_moe")),
    Case(ROWS, "the config says pairs, --gate-up says halves", CT,
        both(merged(fused), type_of("inkling", inference_moe_w13_interleaved=True)), options=WIDE, convert=HALVES,
        inspect=HALVES),
    Case(ROWS, "the config says pairs", CT, both(merged(fused), type_of("inkling", inference_moe_w13_interleaved=True)),
        options=WIDE),
    Case(ROWS, "--gate-up says halves", "mimo-v2.6-flash", both(merged(fused), type_of("inkling")), convert=HALVES,
        inspect=HALVES),
    Case(ROWS, "*_blocks of OpenAI's privacy filter", "gpt-oss-20b", type_of("openai_privacy_filter")),
    Case(ROWS, "*_blocks, --gate-up says pairs", "gpt-oss-20b", type_of("my_moe"), convert=PAIRS, inspect=PAIRS),
]


def as_bitsandbytes(tensors):
    """Codes without shape, absmax beside them."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith("_blocks"):
            out[name.replace("_blocks", "")] = dtype, [len(data), 1], data
        elif name.endswith("_scales"):
            out[name.replace("_scales", ".absmax")] = dtype, [len(data)], data
        else:
            out[name] = dtype, shape, data
    return out


def in_bf16(tensors):
    """Codes as BF16 of a quarter of the columns, without scales."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith("_blocks"):
            out[name.removesuffix("_blocks")] = "BF16", [*shape[:2], shape[2] * shape[3] // 2], data
        elif not name.endswith("_scales"):
            out[name] = dtype, shape, data
    return out


METHODS = [
    Case(OTHER, "bitsandbytes", "gpt-oss-20b",
        both(merged(as_bitsandbytes),
            settings(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}))),
    Case(OTHER, "bitsandbytes, experts one by one", "kimi-k2.5-quark",
        both(renamed(r"(experts\.\d+\..*weight)_scale$", r"\1.absmax"),
            mapped(r"experts\.\d+\..*weight$", lambda dtype, shape, data: (dtype, [len(data), 1], data)),
            settings(quantization_config={"quant_method": "bitsandbytes"}))),
    Case(OTHER, "BF16, the config says MXFP4", "gpt-oss-20b",
        merged(in_bf16)),
]
LLM = [
    Case(NESTED, "llm_config, as InternVL has", CT, nested("llm_config"), options=WIDE),
    Case(NESTED, "llm_config", "mimo-v2.6-flash", nested("llm_config")),
    Case(NESTED, "llm_config with another hidden size", CT,
        both(nested("llm_config"), config(lambda says: says["llm_config"].update(hidden_size=256))), options=WIDE),
    Case(NESTED, "llm_config with another number of experts", "mimo-v2.6-flash",
        both(nested("llm_config"), config(lambda says: says["llm_config"].update(n_routed_experts=16)))),
    Case(NESTED, "language_config with two layers more", "minimax-m2.7-quark",
        both(nested("language_config"), config(lambda says: says["language_config"].update(num_hidden_layers=6))),
        allowed=True),
]
MLX = settings(quantization={"group_size": 32, "bits": 4, "mode": "mxfp4"}, quantization_config=None)


def words_of_routers(tensors):
    """Routers of eight bits, with scales and biases of each 32 columns."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        out[name] = dtype, shape, data
        if name.endswith("router.weight"):
            rows, columns = shape
            out[name] = "U32", [rows, columns // 4], data[: rows * columns]
            for part in ("scales", "biases"):
                out[name.replace("weight", part)] = "BF16", [rows, columns // 32], data[: rows * columns // 32 * 2]
    return out


def not_served(bench):
    result = convert_and_verify(bench)
    if any("serve it with" in line for line in result.lines):
        raise Wrong("it is advised to serve it")
    return result


ROUTERS = [
    Case(ROUTER, "MLX, routers of 16 bits", "gpt-oss-20b", both(merged(in_words), MLX)),
    Case(ROUTER, "MLX, routers in words of four codes", "gpt-oss-20b",
        both(merged(lambda t: words_of_routers(in_words(t))), MLX), act=not_served),
    Case(ROUTER, "MLX, the last layer's router", "tiny/gpt-oss",
        both(merged(lambda t: in_words(t) | {n: v for n, v in words_of_routers(t).items() if "2.mlp.router." in n}),
            MLX),
        act=not_served),
]


def few_lines(bench):
    """Refused in at most a line for each of three projections, each with a count and the last name."""
    result = convert_and_verify(bench)
    errors = [line for line in lines_of(bench.run("inspect", "ckpt")) if line.startswith("error: ")]
    if len(errors) > 3:
        raise Wrong(f"{len(errors)} lines: {errors}")
    return result


def transposed(dtype, shape, data):
    return dtype, shape[::-1], data


def repeated(instance, model, alter, **more):
    return Case(ONCE, instance, model, alter, act=few_lines, **more)


REPEATS = [
    repeated("transposed scales of 32 experts", CT, mapped(r"experts.*weight_scale$", transposed), options=WIDE),
    repeated("transposed scales of all experts", "kimi-k3", mapped(r"experts.*weight_scale$", transposed)),
    repeated("BF16 scales of all experts", "mimo-v2.6-flash",
        mapped(r"experts.*weight_scale$", lambda dtype, shape, data: ("BF16", shape, data * 2))),
    repeated("no scales of all experts but the first", "ling",
        merged(lambda t: {n: v for n, v in t.items() if not re.search(r"experts\.[1-7]\..*weight_scale_inv", n)})),
    repeated("NaN scales of all experts but the first layer's", "minimax-m2.7-quark",
        mapped(r"layers.[1-3].*experts.*weight_scale$", lambda dtype, shape, data: (dtype, shape, b"\xff" * len(data))),
        seen="contents", allowed="^warning: .*holds NaN"),
    repeated("NaN in the codes' scales of one layer", "gpt-oss-20b",
        mapped(r"layers.2.*_scales$", lambda dtype, shape, data: (dtype, shape, b"\xff" * len(data))), seen="contents",
        allowed="^warning: .*holds NaN"),
]
CASES = [*ORDER, *METHODS, *LLM, *ROUTERS, *REPEATS]
