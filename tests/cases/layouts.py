"""Tensors and configs whose meaning is not obvious."""

import re

from case import Case, Wrong, convert_and_verify, lines_of
from checkpoint import both, config, fused, in_words, mapped, merged, nested, renamed, settings, stacked

CT = "qwen3-30b-a3b-ct"
WIDE = ("--intermediate", "128")  # vLLM pads nothing of compressed-tensors
ROWS, OTHER, NESTED, ROUTER = (
    "the order of gate and up rows is not said",
    "experts are not MXFP4",
    "sizes in a nested config",
    "routers are quantized",
)
ONCE = "one cause repeats in many tensors"


def refused(kind, instance, model, alter, message, **more):
    return Case(kind, instance, model, alter, "refused", "^error: .*" + message, **more)


def type_of(name, **more):
    return settings(model_type=name, **more)


HALVES, PAIRS = ("--gate-up", "concatenated"), ("--gate-up", "interleaved")
ORDER = [
    refused(
        ROWS,
        "w13 of all experts, model type inkling",
        CT,
        both(merged(fused), type_of("inkling")),
        r"config.json: model_type 'inkling' does not say the order of gate and up rows in w13",
        options=WIDE,
    ),
    refused(
        ROWS,
        "w13 of all experts, no model type",
        "mimo-v2.6-flash",
        both(merged(fused), type_of("")),
        r"config.json: model_type '' does not say the order of gate and up rows in w13",
    ),
    refused(
        ROWS,
        "*_blocks, model type my_moe",
        "gpt-oss-20b",
        type_of("my_moe"),
        r"config.json: model_type 'my_moe' does not say the order of gate and up rows in \*_blocks",
    ),
    refused(
        ROWS,
        "the config says pairs, --gate-up says halves",
        CT,
        both(merged(fused), type_of("inkling", inference_moe_w13_interleaved=True)),
        r"inference_moe_w13_interleaved is true, but --gate-up is concatenated",
        options=WIDE,
        convert=HALVES,
        inspect=HALVES,
    ),
    Case(
        ROWS,
        "the config says pairs",
        CT,
        both(merged(fused), type_of("inkling", inference_moe_w13_interleaved=True)),
        "right",
        options=WIDE,
    ),
    Case(
        ROWS,
        "--gate-up says halves",
        "mimo-v2.6-flash",
        both(merged(fused), type_of("inkling")),
        "right",
        convert=HALVES,
        inspect=HALVES,
    ),
    Case(ROWS, "*_blocks of OpenAI's privacy filter", "gpt-oss-20b", type_of("openai_privacy_filter"), "right"),
    Case(
        ROWS,
        "*_blocks, --gate-up says pairs",
        "gpt-oss-20b",
        type_of("my_moe"),
        "warned",
        r"^warning: .*model_type 'my_moe' is not known; read as GPT-OSS by its tensor names",
        convert=PAIRS,
        inspect=PAIRS,
    ),
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


METHODS = [
    refused(
        OTHER,
        "bitsandbytes",
        "gpt-oss-20b",
        both(
            merged(as_bitsandbytes),
            settings(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        ),
        r"layers.0.mlp.experts.*U8 \[\d+, 1\].*bitsandbytes",
    ),
    refused(
        OTHER,
        "bitsandbytes, experts one by one",
        "kimi-k2.5-quark",
        both(
            renamed(r"(experts\.\d+\..*weight)_scale$", r"\1.absmax"),
            mapped(r"experts\.\d+\..*weight$", lambda dtype, shape, data: (dtype, [len(data), 1], data)),
            settings(quantization_config={"quant_method": "bitsandbytes"}),
        ),
        r"experts.*U8 \[\d+, 1\].*bitsandbytes",
    ),
    refused(
        OTHER,
        "compressed-tensors, all experts in one tensor",
        CT,
        merged(stacked),
        r"experts.*_proj.weight_packed.*U8 \[8, 128, 64\].*compressed-tensors",
        options=WIDE,
    ),
    refused(
        OTHER,
        "BF16, the config says MXFP4",
        "gpt-oss-20b",
        merged(
            lambda t: {
                re.sub("_blocks$", "", n): (
                    ("BF16", [v[1][0], v[1][1], v[1][2] * v[1][3] // 2], v[2]) if n.endswith("_blocks") else v
                )
                for n, v in t.items()
                if not n.endswith("_scales")
            }
        ),
        r"experts.*BF16",
    ),
]
LLM = [
    Case(NESTED, "llm_config, as InternVL has", CT, nested("llm_config"), "right", options=WIDE),
    Case(NESTED, "llm_config", "mimo-v2.6-flash", nested("llm_config"), "right"),
    refused(
        NESTED,
        "llm_config with another hidden size",
        CT,
        both(nested("llm_config"), config(lambda says: says["llm_config"].update(hidden_size=256))),
        r"config.json says hidden_size = 256",
        options=WIDE,
    ),
    refused(
        NESTED,
        "llm_config with another number of experts",
        "mimo-v2.6-flash",
        both(nested("llm_config"), config(lambda says: says["llm_config"].update(n_routed_experts=16))),
        r"n_routed_experts = 16",
    ),
    refused(
        NESTED,
        "language_config with two layers more",
        "minimax-m2.7-quark",
        both(nested("language_config"), config(lambda says: says["language_config"].update(num_hidden_layers=6))),
        r"num_hidden_layers = 6",
        allowed=True,
    ),
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
    Case(ROUTER, "MLX, routers of 16 bits", "gpt-oss-20b", both(merged(in_words), MLX), "right"),
    Case(
        ROUTER,
        "MLX, routers in words of four codes",
        "gpt-oss-20b",
        both(merged(lambda t: words_of_routers(in_words(t))), MLX),
        "right",
        r"quantised as only MLX reads it, not vLLM and SGLang: model.layers.0.mlp.router.weight and 3 more$",
        act=not_served,
    ),
    Case(
        ROUTER,
        "MLX, the last layer's router",
        "tiny/gpt-oss",
        both(
            merged(
                lambda t: {
                    **in_words(t),
                    **{n: v for n, v in words_of_routers(t).items() if "layers.2.mlp.router." in n},
                }
            ),
            MLX,
        ),
        "right",
        r"quantised as only MLX reads it, .*: model.layers.2.mlp.router.weight$",
        act=not_served,
    ),
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


def repeated(instance, model, alter, message, **more):
    return refused(ONCE, instance, model, alter, message, act=few_lines, **more)


REPEATS = [
    repeated(
        "transposed scales of 32 experts",
        CT,
        mapped(r"experts.*weight_scale$", transposed),
        r"weight_scale: .*\(\d+ such, the last is .*layers.3.*\)$",
        options=WIDE,
    ),
    repeated(
        "transposed scales of all experts",
        "kimi-k3",
        mapped(r"experts.*weight_scale$", transposed),
        r"weight_scale: .*\(\d+ such, the last is .*layers.3.*\)$",
    ),
    repeated(
        "BF16 scales of all experts",
        "mimo-v2.6-flash",
        mapped(r"experts.*weight_scale$", lambda dtype, shape, data: ("BF16", shape, data * 2)),
        r"weight_scale: .*\(\d+ such, the last is .*layers.3.*\)$",
    ),
    repeated(
        "no scales of all experts but the first",
        "ling",
        merged(lambda t: {n: v for n, v in t.items() if not re.search(r"experts\.[1-7]\..*weight_scale_inv", n)}),
        r"no scales beside it .*\(21 such, the last is model.layers.3.*\)$",
    ),
    repeated(
        "NaN scales of all experts but the first layer's",
        "minimax-m2.7-quark",
        mapped(r"layers.[1-3].*experts.*weight_scale$", lambda dtype, shape, data: (dtype, shape, b"\xff" * len(data))),
        r"(0xFF|holds NaN)",
        seen="contents",
        allowed=True,
    ),
    repeated(
        "NaN in the codes' scales of one layer",
        "gpt-oss-20b",
        mapped(r"layers.2.*_scales$", lambda dtype, shape, data: (dtype, shape, b"\xff" * len(data))),
        r"(0xFF|holds NaN)",
        seen="contents",
        allowed=True,
    ),
]
CASES = [*ORDER, *METHODS, *LLM, *ROUTERS, *REPEATS]
