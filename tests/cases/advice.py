"""How the program proposes to serve an output."""

import re

from case import Case, Result, Wrong, lines_of, told, verdict_of
from checkpoint import merged, nothing, renamed

TP, SERVE = "a size that the engine does not start with", "a model that the engine does not load"
CT, WIDE = "qwen3-30b-a3b-ct", ("--intermediate", "128")


def at_size(size, is_served, engine="vllm"):
    """convert for ranks; whether a command to serve it is proposed."""

    def act(bench):
        before = bench.names()
        done = bench.run("convert", "ckpt", "out", "--backend", "marlin", "--engine", engine, "--tp-size", size)
        verdict = verdict_of(done)
        if verdict == "refused" and bench.names() != before:
            raise Wrong("left something behind")
        if ("serve it with" in told(done)) != is_served:
            raise Wrong(f"serve it with: {told(done)}")
        if verdict != "refused":
            bench.must_say(bench.must(0, "verify", "out", "--source", "ckpt"), "right at level", "verify")
        return Result(verdict, lines_of(done))

    return act


def one_expert_less(last):
    """The last layer has an expert less than the others, and its router a row."""

    def change(tensors):
        out = {}
        for name, (dtype, shape, data) in tensors.items():
            if f"layers.{last}." in name and "mlp.gate." in name:
                data, shape = data[: len(data) // shape[0] * (shape[0] - 1)], [shape[0] - 1, *shape[1:]]
            if not re.search(rf"layers\.{last}\.mlp\.experts\.7\.", name):
                out[name] = dtype, shape, data
        return out

    return merged(change)


def size(instance, model, tp, is_served, **more):
    act = at_size(tp, is_served, more.pop("engine", "vllm"))
    return Case(TP, instance, model, more.pop("alter", nothing), act=act, **more)


SIZES = [
    size("3 ranks, 4 heads", CT, 3, False, options=("--intermediate", "384")),
    size("5 ranks, 4 heads", "gpt-oss-20b", 5, False),
    size("4 ranks, 4 heads; the last rank would have nothing", "gpt-oss-20b", 4, False),
    size("2 ranks, 4 heads", "gpt-oss-20b", 2, True),
    size("2 ranks of 80 rows for SGLang, which pads no half group", "gpt-oss-20b", 2, False, engine="sglang"),
    size("2 ranks, 2 heads", "deepseek-v4-flash", 2, True),
    size("4 ranks, 2 heads", "deepseek-v4-flash", 4, False),
]
NOT_LOADED = [
    Case(SERVE, "names of PEFT", CT, renamed("^", "base_model.model."), options=WIDE, act=at_size(1, False)),
    Case(SERVE, "names of PEFT", "gpt-oss-20b", renamed("^", "base_model.model."), act=at_size(1, False)),
    Case(SERVE, "an expert less in the last layer", "mimo-v2.6-flash", one_expert_less(3), act=at_size(1, False)),
    Case(SERVE, "an expert less in layer 2", "ling", one_expert_less(2), act=at_size(1, False)),
]
CASES = [*SIZES, *NOT_LOADED]
