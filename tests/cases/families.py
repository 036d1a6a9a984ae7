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
    Case(NAME, "AFMoE's", "trinity-mini-ct", nothing, options=WIDE),
    Case(NAME, "Hy3's", "mimo-v2.6-flash", both(router(".mlp.router.gate.weight"), type_of("hy_v3"))),
    Case(NAME, "Gemma-4's, beside the module of the experts", "gemma-4-26b-a4b-ct", nothing, options=WIDE),
    Case(NAME, "Gemma-4's, experts in moe.", "gemma-4-26b-a4b-ct", renamed(r"\.experts\.", ".moe.experts."), options=WIDE),
    Case(NAME, "Granite's", CT, both(router(".mlp.router.layer.weight"), type_of("granitemoe_x")), options=WIDE),
    Case(NAME, "AFMoE's, which has an expert more", CT, both(router(".mlp.router.gate.weight"), with_rows(1)),
        options=WIDE),
    Case(NAME, "no known name", CT, router(".mlp.chooser.weight"), options=WIDE),
    Case(NAME, "no known name, with another number of rows", "mimo-v2.6-flash",
        both(router(".mlp.my_router.weight"), with_rows(-4))),
]


LONGCAT = both(with_rows(4), router(".mlp.router.classifier.weight"))
EXTRA = [
    Case(ROWS, "LongCat's zero experts", CT, both(LONGCAT, settings(zero_expert_num=4)), options=WIDE),
    Case(ROWS, "sinks, as Inkling has", "mimo-v2.6-flash",
        both(with_rows(2), settings(shared_expert_sink=True, n_shared_experts=2))),
    Case(ROWS, "the config has none", CT, LONGCAT, options=WIDE),
    Case(ROWS, "an expert is missing, too", CT,
        both(LONGCAT, settings(zero_expert_num=4), without("layers.2.mlp.experts.7.")), options=WIDE),
]


def quantization(**values):
    return config(lambda says: says["quantization_config"].update(values))


def compression(says):
    says["compression_config"] = says.pop("quantization_config")


def thinker(says):
    return {"thinker_config": {"text_config": says.pop("text_config")}, **says}


CONFIGS = [
    Case(CONFIG, "AutoRound's", AUTOROUND, nothing, options=WIDE),
    Case(CONFIG, "AutoRound's, type mx_fp4e2m1", AUTOROUND, quantization(data_type="mx_fp4e2m1"), options=WIDE),
    Case(CONFIG, "the privacy filter's", "privacy-filter-mxfp4", quantization(quant_method="gpt_oss_mxfp4")),
    Case(CONFIG, "a list with a number for each layer, as HunYuan's", CT,
        settings(num_experts_per_tok=[2] * 4, moe_intermediate_size=[128] * 4), options=WIDE),
    Case(CONFIG, "AutoRound's, integers", AUTOROUND, quantization(data_type="int"), options=WIDE),
    Case(CONFIG, "AutoRound's, groups of 16", AUTOROUND, quantization(group_size=16), options=WIDE),
    Case(CONFIG, "compression_config", CT, config(compression), options=WIDE),
    Case(CONFIG, "compression_config", QUARK, config(compression)),
    Case(CONFIG, "thinker_config.text_config", CT, both(nested("text_config"), config(thinker)), options=WIDE),
    Case(CONFIG, "thinker_config.text_config with another number of experts", CT,
        both(settings(num_experts=16), nested("text_config"), config(thinker)), options=WIDE),
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


def said_once(bench):
    """Converted, with one line of inspect that is the row's message."""
    result = convert_and_verify(bench)
    lines = lines_of(bench.run("inspect", "ckpt"))
    if [bench.shown(line) for line in lines].count(bench.row.message) != 1:
        raise Wrong(f"inspect does not say it once: {lines}")
    return Result(result.verdict, [*result.lines, *lines])


def beside(precision, model, layers, **more):
    pattern = rf"layers\.({layers})\."
    alter = as_precision(pattern, precision)
    return Case(BESIDE, f"{precision} in layers {layers}", model, alter, act=said_once, **more)


MIXED = [
    beside("MXFP8", CT, "1|2", options=WIDE),
    beside("MXFP8 stored as U8", CT, "0", options=WIDE),
    beside("MXFP8", AUTOROUND, "0|3", options=WIDE),
    beside("NVFP4", CT, "3", options=WIDE),
    beside("BF16", CT, "0|3", options=WIDE),
    beside("MXFP8", QUARK, "0|1"),
    beside("NVFP4", QUARK, "2"),
]


def within(precision, model, pattern, **more):
    return Case(WITHIN, f"{precision}, {pattern}", model, as_precision(pattern, precision), **more)


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


def of_format(instance, model, alter, **more):
    return Case(OTHER, instance, model, alter, **more)


FORMATS = [
    of_format("NVFP4", CT, as_precision("", "NVFP4"), options=WIDE),
    of_format("NVFP4, by ModelOpt", QUARK, both(as_precision("", "NVFP4"), quantization(quant_method="modelopt"))),
    of_format("MXFP8 stored as U8", QUARK, as_precision("", "MXFP8 stored as U8")),
    of_format("MXFP8", CT, as_precision("", "MXFP8"), options=WIDE),
    of_format("INT4", CT, as_precision("", "INT4"), options=WIDE),
    of_format("GPTQ", QUARK, both(merged(gptq), quantization(quant_method="gptq"))),
    of_format("AWQ", CT, both(merged(gptq), quantization(quant_method="awq")), options=WIDE),
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
    routers = [n for n in tensors if n.endswith("gate.weight")]
    sinks = {re.sub("gate.weight$", f"shared_experts.shared_{w}_weight", n) for n in routers for w in ("w13", "w2")}
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
    config(lambda says: says.update(intermediate_size=says["moe_intermediate_size"])),
    config(lambda says: says.update(num_local_experts=says.pop("num_experts"))),
)
ALL = [
    Case(STACKED, "Inkling, by Quark", CT, INKLING, options=WIDE),
    Case(STACKED, "Inkling, the first layer in BF16", CT, both(INKLING, merged(first_in_bf16)), act=said_once,
        options=WIDE),
    Case(STACKED, "Inkling, by AutoRound", AUTOROUND, INKLING_BY_AUTOROUND, options=WIDE),
    Case(STACKED, "gate_up_proj of compressed-tensors", CT, PACKED, options=WIDE),
    Case(STACKED, "gate_up_proj of AutoRound", AUTOROUND, PACKED, options=WIDE),
    Case(STACKED, "Granite's input_linear", CT, GRANITE, options=WIDE),
    Case(STACKED, "Gemma-4's w13", "gemma-4-26b-a4b-ct", merged(fused), options=WIDE),
    Case(STACKED, "Inkling, other numbers of scales", CT,
        both(INKLING, mapped(r"w13_weight.scale$", lambda d, s, b: (d, [s[0], s[1] * 2], b * 2))), options=WIDE),
    Case(STACKED, "Inkling, --gate-up says halves", CT, both(INKLING, settings(inference_moe_w13_interleaved=True)),
        options=WIDE, convert=("--gate-up", "concatenated"), inspect=("--gate-up", "concatenated")),
    Case(STACKED, "gate_up_proj, no order", CT, both(PACKED, type_of("my_moe")), options=WIDE),
    Case(STACKED, "gate_up_proj, transposed scales", AUTOROUND,
        both(PACKED, mapped(r"gate_up_proj.weight_scale", transposed)), options=WIDE),
    Case(STACKED, "Granite, no gate rows", CT,
        both(GRANITE, mapped("input_linear", lambda d, s, b: (d, [s[0], s[1] // 2, s[2]], b[: len(b) // 2]))),
        options=WIDE),
    Case(STACKED, "Gemma-4, no down matrices", "gemma-4-26b-a4b-ct", both(merged(fused), without("w2_weight")), options=WIDE),
]
SPARK = "muse-spark-quark"
NORMS = [
    Case(NORM, "Muse Spark", SPARK, nothing, act=said_once),
    Case(NORM, "vLLM's config", CT, settings(moe={"use_post_expert_norm": True}), act=said_once, options=WIDE),
    Case(NORM, "with another width", SPARK, text_settings(moe_hidden_size=256)),
]
CASES = [*NAMES, *EXTRA, *CONFIGS, *MIXED, *TORN, *FORMATS, *ALL, *NORMS]
