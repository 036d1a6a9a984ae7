"""Names, configs and layers that engines load, other than those of the first families."""

import re

from case import Case, Result, Wrong, convert_and_verify, lines_of
from checkpoint import both, config, fused, mapped, merged, nested, nothing, renamed, settings, text_settings, without

CT, AUTOROUND, QUARK = "qwen3-30b-a3b-ct", "qwen3-30b-a3b-autoround", "qwen3.5-397b-a17b-quark"
WIDE = ("--intermediate", "128")  # vLLM pads nothing of compressed-tensors
NAME, ROWS, CONFIG, BESIDE, WITHIN, OTHER, STACKED, NORM = (
    "a router has another name",
    "a router has more rows than experts",
    "the config says MXFP4 in other words",
    "layers of another precision beside MXFP4",
    "experts of a layer in several precisions",
    "experts are of another format",
    "all experts of a layer in one tensor",
    "a norm follows each expert",
)


def refused(kind, instance, model, alter, message, **more):
    return Case(kind, instance, model, alter, "refused", "^error: .*" + message, **more)


def right(kind, instance, model, alter, **more):
    return Case(kind, instance, model, alter, "right", **more)


def type_of(name, **more):
    return settings(model_type=name, **more)


def router(name):
    """The router of each layer under another name, its bias beside the experts."""
    return both(
        renamed(r"\.mlp\.gate\.weight$", name),
        renamed(r"\.mlp\.gate\.e_score_correction_bias$", ".mlp.expert_bias"),
    )


def with_rows(count):
    """Routers with other rows; the tensors that follow have as many as before."""

    def change(dtype, shape, data):
        rows = shape[0] + count
        return dtype, [rows, shape[1]], (data + data)[: len(data) // shape[0] * rows]

    return mapped(r"\.mlp\.[a-z_.]*(gate|router|classifier)\.weight$", change)


NAMES = [
    right(NAME, "AFMoE's", CT, both(router(".mlp.router.gate.weight"), type_of("afmoe")), options=WIDE),
    right(NAME, "Hy3's", "mimo-v2.6-flash", both(router(".mlp.router.gate.weight"), type_of("hy_v3"))),
    right(
        NAME,
        "Gemma-4's, beside the module of the experts",
        CT,
        both(renamed(r"\.mlp\.experts\.", ".experts."), router(".router.proj.weight"), type_of("gemma4_text")),
        options=WIDE,
    ),
    right(
        NAME,
        "Gemma-4's, experts in moe.",
        CT,
        both(renamed(r"\.mlp\.experts\.", ".moe.experts."), router(".router.proj.weight"), type_of("gemma4_text")),
        options=WIDE,
    ),
    right(NAME, "Granite's", CT, both(router(".mlp.router.layer.weight"), type_of("granitemoe_x")), options=WIDE),
    refused(
        NAME,
        "AFMoE's, which has an expert more",
        CT,
        both(router(".mlp.router.gate.weight"), with_rows(1)),
        r"layers.0.mlp.experts: experts 8 missing, the router has 9",
        options=WIDE,
    ),
    Case(
        NAME,
        "no known name",
        CT,
        router(".mlp.chooser.weight"),
        "warned",
        r"^warning: model.layers.0.mlp.experts: no router of a known name, so 8 experts are not compared with it; "
        r"beside them: chooser.weight BF16 \[8, 128\] \(4 such",
        options=WIDE,
    ),
    Case(
        NAME,
        "no known name, with another number of rows",
        "mimo-v2.6-flash",
        both(router(".mlp.my_router.weight"), with_rows(-4)),
        "warned",
        r"^warning: .*so 8 experts are not compared with it; beside them: my_router.weight \w+ \[4, 128\]",
    ),
]


LONGCAT = both(with_rows(4), router(".mlp.router.classifier.weight"))
EXTRA = [
    right(ROWS, "LongCat's zero experts", CT, both(LONGCAT, settings(zero_expert_num=4)), options=WIDE),
    right(
        ROWS,
        "sinks, as Inkling has",
        "mimo-v2.6-flash",
        both(with_rows(2), settings(shared_expert_sink=True, n_shared_experts=2)),
    ),
    refused(ROWS, "the config has none", CT, LONGCAT, r"experts 8-11 missing, the router has 12", options=WIDE),
    refused(
        ROWS,
        "an expert is missing, too",
        CT,
        both(
            LONGCAT,
            settings(zero_expert_num=4),
            without("layers.2.mlp.experts.7."),
        ),
        r"model.layers.2.mlp.experts: experts 7 missing, the router has 8",
        options=WIDE,
    ),
]


def quantization(**values):
    return config(lambda says: says["quantization_config"].update(values))


def compression(says):
    says["compression_config"] = says.pop("quantization_config")


def thinker(says):
    return {"thinker_config": {"text_config": says.pop("text_config")}, **says}


CONFIGS = [
    right(CONFIG, "AutoRound's", AUTOROUND, nothing, options=WIDE),
    right(CONFIG, "AutoRound's, type mx_fp4e2m1", AUTOROUND, quantization(data_type="mx_fp4e2m1"), options=WIDE),
    refused(
        CONFIG,
        "AutoRound's, integers",
        AUTOROUND,
        quantization(data_type="int"),
        r"config.json: quantization_config.data_type is 'int', but the experts are MXFP4",
        options=WIDE,
    ),
    refused(
        CONFIG,
        "AutoRound's, groups of 16",
        AUTOROUND,
        quantization(group_size=16),
        r"config.json: quantization_config.group_size is 16, 32 expected",
        options=WIDE,
    ),
    right(CONFIG, "compression_config", CT, config(compression), options=WIDE),
    right(CONFIG, "compression_config", QUARK, config(compression)),
    right(CONFIG, "thinker_config.text_config", CT, both(nested("text_config"), config(thinker)), options=WIDE),
    refused(
        CONFIG,
        "thinker_config.text_config with another number of experts",
        CT,
        both(settings(num_experts=16), nested("text_config"), config(thinker)),
        r"config.json: num_experts = 16, but the layers have 8 experts",
        options=WIDE,
    ),
]
def as_precision(pattern, precision):
    """Experts' weights whose names match, in another precision of compressed-tensors."""

    def change(tensors):
        out = dict(tensors)
        for name, (dtype, shape, data) in tensors.items():
            stem, _, last = name.rpartition(".")
            if not re.search(pattern, name) or ".experts." not in name or "scale" in last or dtype != "U8":
                continue
            rows, columns = shape
            scale = stem + ".weight_scale"
            if precision == "NVFP4":
                out[scale] = "F8_E4M3", [rows, columns // 8], b"\x38" * (rows * columns // 8)
                out[stem + ".weight_global_scale"] = "F32", [1], b"\0\0\x80\x3f"
            elif precision == "INT4":
                out[name] = "I32", [rows, columns // 4], data
                out[scale] = "BF16", [rows, columns // 16], b"\x80\x3f" * (rows * columns // 16)
                out[stem + ".weight_shape"] = "I64", [2], bytes(16)
            else:
                del out[name]
                whole = (data + data)[: rows * columns * 2]
                if precision == "BF16":
                    del out[scale]
                    out[stem + ".weight"] = "BF16", [rows, columns * 2], b"\x80\x3f" * (rows * columns * 2)
                else:
                    kind = "U8" if precision == "MXFP8 stored as U8" else "F8_E4M3"
                    out[stem + ".weight"] = kind, [rows, columns * 2], bytes(b & 0x7B for b in whole)
        return out

    return merged(change)


def said_once(message):
    """Converted, with one line that says it."""

    def act(bench):
        result = convert_and_verify(bench)
        lines = [line for line in lines_of(bench.run("inspect", "ckpt")) if re.search(message, line)]
        if len(lines) != 1:
            raise Wrong(f"{len(lines)} lines of inspect have {message!r}")
        return Result(result.verdict, [*result.lines, *lines])

    return act


def beside(precision, model, layers, message, **more):
    pattern = rf"layers\.({layers})\."
    alter = as_precision(pattern, precision)
    return Case(BESIDE, f"{precision} in layers {layers}", model, alter, "right", message, act=said_once(message), **more)


MIXED = [
    beside("MXFP8", CT, "1|2", r"model.layers.1.mlp.experts and 1 more: experts are MXFP8, copied unchanged", options=WIDE),
    beside("MXFP8 stored as U8", CT, "0", r"model.layers.0.mlp.experts: experts are MXFP8 stored as U8", options=WIDE),
    beside("MXFP8", AUTOROUND, "0|3", r"model.layers.0.mlp.experts and 1 more: experts are MXFP8", options=WIDE),
    beside("NVFP4", CT, "3", r"model.layers.3.mlp.experts: experts are NVFP4, copied unchanged", options=WIDE),
    beside("BF16", CT, "0|3", r"model.layers.0.mlp.experts and 1 more: experts are BF16", options=WIDE),
    beside("MXFP8", QUARK, "0|1", r"layers.0.mlp.experts and 1 more: experts are MXFP8, copied unchanged"),
    beside("NVFP4", QUARK, "2", r"layers.2.mlp.experts: experts are NVFP4, copied unchanged"),
]


def within(precision, model, pattern, **more):
    message = rf"{precision}, but other experts of .*layers.\d.mlp.experts are MXFP4"
    return refused(WITHIN, f"{precision}, {pattern}", model, as_precision(pattern, precision), message, **more)


TORN = [
    within("NVFP4", CT, r"layers.1.*experts.3\.", options=WIDE),
    within("MXFP8", CT, r"layers.2.*down_proj", options=WIDE),
    within("BF16", QUARK, r"layers.0.*experts.0\."),
    within("INT4", QUARK, r"layers.3.*up_proj"),
]


def gptq(tensors):
    """Words of codes, scales and zeros as GPTQ and AWQ name them."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        stem, _, last = name.rpartition(".")
        if ".experts." not in name:
            out[name] = dtype, shape, data
        elif "scale" in last:
            out[stem + ".scales"] = "F16", [shape[0], shape[1] // 2], data
            out[stem + ".qzeros"] = "I32", [shape[0] // 4, shape[1]], data
        else:
            out[stem + ".qweight"] = "I32", [shape[0], shape[1] // 4], data
    return out


def of_format(instance, model, alter, message, **more):
    return refused(OTHER, instance, model, alter, "no MXFP4 routed experts found; .*experts.*" + message, **more)


FORMATS = [
    of_format(
        "NVFP4", CT, as_precision("", "NVFP4"), r"U8 \[.*, taken for NVFP4, .*quant_method compressed-tensors", options=WIDE
    ),
    of_format("NVFP4, by ModelOpt", QUARK, both(as_precision("", "NVFP4"), quantization(quant_method="modelopt")), r"NVFP4, .*modelopt"),
    of_format("MXFP8 stored as U8", QUARK, as_precision("", "MXFP8 stored as U8"), r"taken for MXFP8 stored as U8, .*quark"),
    of_format("MXFP8", CT, as_precision("", "MXFP8"), r"F8_E4M3 \[.*, taken for MXFP8", options=WIDE),
    of_format("INT4", CT, as_precision("", "INT4"), r"I32 \[.*, taken for INT4", options=WIDE),
    of_format("GPTQ", QUARK, both(merged(gptq), quantization(quant_method="gptq")), r"taken for GPTQ's or AWQ's INT4, .*quant_method gptq"),
    of_format("AWQ", CT, both(merged(gptq), quantization(quant_method="awq")), r"taken for GPTQ's or AWQ's INT4, .*awq", options=WIDE),
]

def stacked(w13, w2, codes, scales):
    """Experts as `fused` makes them, in other names."""
    return both(
        merged(fused),
        renamed(r"experts\.(w13|w2)_weight$", rf"experts.\1{codes}"),
        renamed(r"experts\.(w13|w2)_weight_scale$", rf"experts.\1{scales}"),
        renamed(r"experts\.w13", "experts." + w13),
        renamed(r"experts\.w2", "experts." + w2),
    )


def flat(dtype, shape, data):
    return dtype, [shape[0] * shape[1], shape[2]], data


def transposed(dtype, shape, data):
    return dtype, [shape[0], shape[2], shape[1]], data


def with_shapes(tensors):
    """What Inkling's converter leaves beside the experts, and the shared sinks."""
    shapes = {n + ".original_shape": ("I64", [3], bytes(24)) for n in tensors if n.endswith("_weight")}
    amax = {n + ".input_amax": ("F32", [1], b"\0\0\x80\x3f") for n in tensors if n.endswith("w13_weight")}
    sinks = {re.sub("gate.weight$", "shared_experts.shared_w13_weight", n) for n in tensors if n.endswith("gate.weight")}
    return {**tensors, **shapes, **amax, **{n: ("BF16", [2, 4, 128], bytes(b"\x80\x3f" * 1024)) for n in sinks}}


def first_in_bf16(tensors):
    out = {n: v for n, v in tensors.items() if not re.search(r"layers\.0\..*experts.*scale", n)}
    for name, (dtype, shape, data) in tensors.items():
        if re.search(r"layers\.0\..*\.experts\.w\d+_weight$", name):
            out[name] = "BF16", [*shape[:2], shape[2] * 2], b"\x80\x3f" * len(data) * 2
    return out


SINKS = {"shared_expert_sink": True, "n_shared_experts": 2}
INKLING = both(
    merged(fused),
    renamed(r"(w13|w2)_weight_scale$", r"\1_weight.scale"),
    mapped(r"w\d+_weight.scale$", flat),
    with_rows(2),
    merged(with_shapes),
    renamed(r"^model\.", "model.llm."),
    renamed(r"llm\.embed_tokens", "llm.embed"),
    renamed(r"^lm_head", "model.llm.unembed"),
    type_of("inkling_mm_model", n_routed_experts=8, **SINKS),
)
INKLING_BY_AUTOROUND = both(
    stacked("w13", "w2", "_weight.weight_packed", "_weight.weight_scale"), type_of("inkling_mm_model")
)
PACKED = stacked("gate_up_proj", "down_proj", ".weight_packed", ".weight_scale")
GRANITE = both(
    stacked("input_linear", "output_linear", ".weight", ".weight_scale"),
    renamed(r"\.mlp\.experts\.", ".block_sparse_moe."),
    renamed(r"\.mlp\.gate\.weight$", ".block_sparse_moe.router.layer.weight"),
    type_of("granitemoehybrid"),
    config(lambda says: says.update(intermediate_size=says["moe_intermediate_size"], num_local_experts=says.pop("num_experts"))),
)
GEMMA = both(merged(fused), renamed(r"\.mlp\.experts\.", ".experts."), router(".router.proj.weight"), type_of("gemma4_text"))
ALL = [
    right(STACKED, "Inkling, by Quark", CT, INKLING, options=WIDE),
    Case(
        STACKED,
        "Inkling, the first layer in BF16",
        CT,
        both(INKLING, merged(first_in_bf16)),
        "right",
        r"model.llm.layers.0.mlp.experts: experts are BF16, copied unchanged",
        act=said_once("experts are BF16"),
        options=WIDE,
    ),
    right(STACKED, "Inkling, by AutoRound", AUTOROUND, INKLING_BY_AUTOROUND, options=WIDE),
    right(STACKED, "gate_up_proj of compressed-tensors", CT, PACKED, options=WIDE),
    right(STACKED, "gate_up_proj of AutoRound", AUTOROUND, PACKED, options=WIDE),
    right(STACKED, "Granite's input_linear", CT, GRANITE, options=WIDE),
    right(STACKED, "Gemma-4's w13", CT, GEMMA, options=WIDE),
    refused(
        STACKED,
        "Inkling, other numbers of scales",
        CT,
        both(INKLING, mapped(r"w13_weight.scale$", lambda d, s, b: (d, [s[0], s[1] * 2], b * 2))),
        r"w13_weight.scale: U8 \[2048, 8\] for codes U8 \[8, 256, 64\], \[2048, 4\] expected; one scale per 16 is NVFP4",
        options=WIDE,
    ),
    refused(
        STACKED,
        "Inkling, --gate-up says halves",
        CT,
        both(INKLING, settings(inference_moe_w13_interleaved=True)),
        r"inference_moe_w13_interleaved is true, but --gate-up is concatenated",
        options=WIDE,
        convert=("--gate-up", "concatenated"),
        inspect=("--gate-up", "concatenated"),
    ),
    refused(
        STACKED,
        "gate_up_proj, no order",
        CT,
        both(PACKED, type_of("my_moe")),
        r"model_type 'my_moe' does not say the order of gate and up rows in gate_up_proj",
        options=WIDE,
    ),
    refused(
        STACKED,
        "gate_up_proj, transposed scales",
        AUTOROUND,
        both(PACKED, mapped(r"gate_up_proj.weight_scale", transposed)),
        r"gate_up_proj.weight_scale: U8 \[8, 4, 256\] for codes U8 \[8, 256, 64\], \[8, 256, 4\] expected",
        options=WIDE,
    ),
    refused(
        STACKED,
        "Granite, no gate rows",
        CT,
        both(GRANITE, mapped("input_linear", lambda d, s, b: (d, [s[0], s[1] // 2, s[2]], b[: len(b) // 2]))),
        r"input_linear.weight: 8 experts with 128 rows of 128 columns, 8 with 256 of 128 expected by output_linear.weight",
        options=WIDE,
    ),
    refused(STACKED, "Gemma-4, no down matrices", CT, both(GEMMA, without("w2_weight")), r"w2_weight: missing", options=WIDE),
]
BEHIND, SPARK = r"a norm follows each expert \(Muse Spark\); verify computes experts without it", "muse-spark-quark"
NORMS = [
    Case(NORM, "Muse Spark", SPARK, nothing, "right", BEHIND, act=said_once(BEHIND)),
    Case(NORM, "vLLM's config", CT, settings(moe={"use_post_expert_norm": True}), "right", BEHIND, act=said_once(BEHIND), options=WIDE),
    refused(NORM, "with another width", SPARK, text_settings(moe_hidden_size=256), r"64 columns or rows, config.json says moe_hidden_size = 256"),
]
CASES = [*NAMES, *EXTRA, *CONFIGS, *MIXED, *TORN, *FORMATS, *ALL, *NORMS]
