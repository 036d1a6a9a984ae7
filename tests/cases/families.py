"""Names, configs and layers that engines load, other than those of the first families."""

from case import Case
from checkpoint import both, config, mapped, nested, renamed, settings, without

CT, QUARK = "qwen3-30b-a3b-ct", "qwen3.5-397b-a17b-quark"
WIDE = ("--intermediate", "128")  # vLLM pads nothing of compressed-tensors
NAME, ROWS, CONFIG = (
    "a router has another name",
    "a router has more rows than experts",
    "the config says MXFP4 in other words",
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


def compression(says):
    says["compression_config"] = says.pop("quantization_config")


def thinker(says):
    return {"thinker_config": {"text_config": says.pop("text_config")}, **says}


CONFIGS = [
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
CASES = [*NAMES, *EXTRA, *CONFIGS]
