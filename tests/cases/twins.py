"""Wrong twins of each family and form: an expert without gate, transposed scales, groups of another size, pairs that are
called halves. Each is refused with the tensor and what was expected, and --allow-incomplete changes nothing."""

import re

from case import Case
from checkpoint import both, config, fused, merged, nested, nothing, settings
from families import AUTOROUND, CT, INKLING_BY_AUTOROUND, PACKED, compression, stacked, thinker

GATE, SWAPPED, GROUPS, HALVES = (
    "experts without gate",
    "transposed scales",
    "groups of another size",
    "pairs that are called halves",
)
GPT_OSS, GEMMA, INKLING = "gpt-oss-20b", "gemma-4-26b-a4b-ct", "inkling-quark"
GRANITE, FILTER = "granite-4.0-h-small-quark", "privacy-filter-mxfp4"
TOGETHER_PACKED = stacked("gate_up_proj", "down_proj", "_packed", "_scale")
# name: model, alteration
FORMS = {
    "AutoRound": (AUTOROUND, nothing),
    "Inkling by Quark": (INKLING, nothing),
    "Inkling by AutoRound": (AUTOROUND, INKLING_BY_AUTOROUND),
    "Granite": (GRANITE, nothing),
    "Gemma-4": (GEMMA, nothing),
    "Gemma-4's w13": (GEMMA, merged(fused)),
    "Gemma-4's gate_up_proj": (GEMMA, TOGETHER_PACKED),
    "Hy3": ("hy3-ct", nothing),
    "AFMoE": ("trinity-mini-ct", nothing),
    "LongCat": ("longcat-flash-ct", nothing),
    "Muse Spark": ("muse-spark-quark", nothing),
    "privacy filter": (FILTER, nothing),
    "gate_up_proj": (CT, PACKED),
    "gate_up_proj_packed": (CT, TOGETHER_PACKED),
    "compression_config": (CT, config(compression)),
    "llm_config": (CT, nested("llm_config")),
    "text_config": (CT, nested("text_config")),
    "thinker_config": (CT, both(nested("text_config"), config(thinker))),
}
OPTIONS = ("--hidden", "128", "--intermediate", "128")
ONE_BY_ONE = r"experts\.1\.gate_proj\.weight"
TOGETHER = r"(experts\.(w13_weight|gate_up_proj)|input_linear)"
SCALES = r"(experts|block_sparse_moe)\..*scales?$"


BESIDE = "a LoRA adapter beside the experts"
IN_BF16 = {"weight": ("BF16", [4, 8, 128], b"\x80\x3f" * 4096)}
IN_MXFP4 = {"weight": ("U8", [4, 8, 64], b"\x11" * 2048), "weight_scale": ("U8", [4, 8, 4], b"\x7f" * 128)}


def without_gate(tensors):
    """Expert 1 of each layer has no gate, or all experts of a tensor have half of its rows."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if re.search(TOGETHER, name):
            axis = 0 if len(shape) == 2 and not name.endswith("bias") else 1
            shape, data = [n // 2 if i == axis else n for i, n in enumerate(shape)], data[: len(data) // 2]
        if not re.search(ONE_BY_ONE, name):
            out[name] = dtype, shape, data
    return out


def scales(change):
    """change(shape, bytes) of the scales of experts of MXFP4."""
    return merged(
        lambda tensors: {
            name: (dtype, *change(shape, data)) if re.search(SCALES, name) else (dtype, shape, data)
            for name, (dtype, shape, data) in tensors.items()
        }
    )


def swapped(shape, data):
    return [*shape[:-2], shape[-1], shape[-2]], data


def finer(shape, data):
    return [*shape[:-1], shape[-1] * 2], data * 2


def coarser(shape, data):
    return [*shape[:-1], shape[-1] // 2], data[: len(data) // 2]


def twin(kind, form, alter, instance=""):
    model, make = FORMS[form]
    return Case(kind, form + instance, model, both(make, alter), options=OPTIONS)


def with_adapter(**parts):
    """A LoRA adapter beside each tensor of experts in MXFP4, as Inkling is published."""
    return merged(
        lambda tensors: {
            **tensors,
            **{
                f"{n}.{matrix}.{suffix.replace('_', '.')}": tensor
                for n in tensors
                if re.search(TOGETHER + "$", n)
                for matrix in ("lora_A", "lora_B")
                for suffix, tensor in parts.items()
            },
        }
    )


def halves(instance, model, alter, options=()):
    return Case(HALVES, instance, model, alter, convert=options, inspect=options)


SAID = ("--gate-up", "concatenated")
KEY = "inference_moe_w13_interleaved"
PAIRS = [
    halves("GPT-OSS", GPT_OSS, nothing, SAID),
    halves("privacy filter", FILTER, nothing, SAID),
    halves("Inkling by Quark", INKLING, config(lambda says: says["text_config"].update({KEY: False}))),
    halves("Inkling by AutoRound", AUTOROUND, both(INKLING_BY_AUTOROUND, settings(**{KEY: False}))),
]
LORA = [
    Case(BESIDE, "in BF16", INKLING, with_adapter(**IN_BF16)),
    Case(BESIDE, "in MXFP4", INKLING, with_adapter(**IN_MXFP4)),
]
CASES = [
    *LORA,
    *(twin(GATE, form, merged(without_gate)) for form in FORMS),
    *(twin(SWAPPED, form, scales(swapped)) for form in FORMS),
    *(twin(GROUPS, form, scales(finer), ", 16") for form in FORMS),
    *(twin(GROUPS, form, scales(coarser), ", 64") for form in FORMS),
    *PAIRS,
]
