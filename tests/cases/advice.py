"""What the program proposes, and what it leaves alone."""

import json
import os
import re

from case import Case, Result, Wrong, lines_of, told, verdict_of
from checkpoint import flipped, merged, nothing, renamed, settings

TP, SERVE, ADD, KEPT = (
    "a size that the engine does not start with",
    "a model that the engine does not load",
    "OUT has another set",
    "unpack --force",
)
DRY, CACHES = "a dry run", "caches of engines tell outputs apart"
CT, WIDE = "qwen3-30b-a3b-ct", ("--intermediate", "128")


def snapshot(folder):
    return {str(p): p.stat().st_mtime_ns for p in [folder, *folder.rglob("*")]}


def at_size(size, is_served):
    """convert for ranks; whether a command to serve it is proposed."""

    def act(bench):
        before = bench.names()
        done = bench.run("convert", "ckpt", "out", "--backend", "marlin", "--engine", "vllm", "--tp-size", size)
        verdict = verdict_of(done)
        if verdict == "refused" and bench.names() != before:
            raise Wrong("left something behind")
        if ("serve it with" in told(done)) != is_served:
            raise Wrong(f"serve it with: {told(done)}")
        if verdict != "refused":
            bench.must_say(bench.must(0, "verify", "out", "--source", "ckpt"), "right at level", "verify")
        return Result(verdict, lines_of(done))

    return act


def dry_run(bench):
    before = snapshot(bench.folder)
    done = bench.convert("ckpt", "out", "--dry-run", *bench.case.convert)
    if snapshot(bench.folder) != before:
        raise Wrong("wrote something")
    return Result(verdict_of(done), lines_of(done))


def another_set(bench):
    """A second set into an OUT: refused, and --add, which is proposed first, does it."""
    bench.must(0, "convert", "ckpt", "out", "--backend", "marlin", "--engine", "vllm", "--no-loader", "-q")
    other = ("convert", "ckpt", "out", "--backend", "triton-hopper", "--engine", "vllm", "--no-loader")
    before = snapshot(bench.folder / "out")
    done = bench.run(*other)
    if snapshot(bench.folder / "out") != before:
        raise Wrong("changed OUT")
    added = bench.must(0, *other, "--add")
    if "error" in told(added):
        raise Wrong(told(added))
    bench.must_say(bench.must(0, "verify", "out", "--source", "ckpt"), "right at level", "verify")
    return Result(verdict_of(done), lines_of(done))


def unpack_twice(bench):
    """unpack into a folder that is there: refused; with --force, the folder that was there is kept."""
    bench.must(0, "convert", "ckpt", "out", "--backend", "marlin", "--engine", "vllm", "--no-loader", "-q")
    bench.must(0, "unpack", "out", "unpacked", "-q")
    own = bench.folder / "unpacked/own.txt"
    own.write_text("mine")
    done = bench.run("unpack", "out", "unpacked")
    foreign = bench.run("unpack", "out", "unpacked", "--force")
    if foreign.returncode != 2 or not own.exists():
        raise Wrong(f"--force beside a user's file: {told(foreign)}")
    own.unlink()
    before = os.stat(bench.folder / "unpacked").st_ino
    bench.must(0, "unpack", "out", "unpacked", "--force")
    if [p.stat().st_ino for p in bench.folder.glob("unpacked.kept-*")] != [before]:
        raise Wrong(f"--force did not keep the folder: {bench.names()}")
    return Result(verdict_of(done), lines_of(done))


def checksum_of(out):
    return json.loads((out / "config.json").read_text())["quantization_config"]["mxfp4_pack"]["checksum"]


def told_apart(alter):
    """The checksum in config.json before and after a change of the checkpoint that leaves its config."""

    def act(bench):
        convert = ("--backend", "marlin", "--engine", "vllm", "--no-loader", "-q")
        bench.must(0, "convert", "ckpt", "out", *convert)
        bench.must(0, "convert", "ckpt", "again", *convert)
        alter(bench.ckpt)
        bench.must(0, "convert", "ckpt", "other", *convert)
        first, again, other = (checksum_of(bench.folder / name) for name in ("out", "again", "other"))
        if first != again or first == other:
            raise Wrong(f"checksums {first}, {again} and {other}")
        return Result("right", ["checksums in quantization_config.mxfp4_pack differ"])

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
    return Case(TP, instance, model, more.pop("alter", nothing), act=at_size(tp, is_served), **more)


SIZES = [
    size("3 ranks, 4 heads", CT, 3, False, options=("--intermediate", "384")),
    size("5 ranks, 4 heads", "gpt-oss-20b", 5, False),
    size("4 ranks, 4 heads; the last rank would have nothing", "gpt-oss-20b", 4, False),
    size("2 ranks, 4 heads", "gpt-oss-20b", 2, True),
    size("2 ranks, 2 heads", "deepseek-v4-flash", 2, True),
    size("4 ranks, 2 heads", "deepseek-v4-flash", 4, False),
]
NOT_LOADED = [
    Case(SERVE, "names of PEFT", CT, renamed("^", "base_model.model."), options=WIDE, act=at_size(1, False)),
    Case(SERVE, "names of PEFT", "gpt-oss-20b", renamed("^", "base_model.model."), act=at_size(1, False)),
    Case(SERVE, "an expert less in the last layer", "mimo-v2.6-flash", one_expert_less(3), act=at_size(1, False)),
    Case(SERVE, "an expert less in layer 2", "ling", one_expert_less(2), act=at_size(1, False)),
]
OUTPUTS = [
    Case(ADD, "made for another backend", "gpt-oss-20b", nothing, act=another_set),
    Case(ADD, "made for another backend", "deepseek-v4-flash", nothing, act=another_set),
    Case(KEPT, "DEST is there", "gpt-oss-20b", nothing, act=unpack_twice),
    Case(KEPT, "DEST is there", "kimi-k2.5-quark", nothing, act=unpack_twice),
    Case(DRY, "of one rank", "kimi-k3", nothing, act=dry_run),
    Case(DRY, "of two ranks", "gpt-oss-20b", nothing, convert=("--tp-size", "2"), act=dry_run),
    Case(DRY, "of an incomplete checkpoint", "ling", settings(num_hidden_layers=5), act=dry_run),
    Case(CACHES, "one bit of an expert", "minimax-m2.7-quark", nothing,
        act=told_apart(flipped(r"experts.3.w2.weight$", 9))),
    Case(CACHES, "one bit of a norm", "deepseek-v4-flash", nothing, act=told_apart(flipped(r"layers.3.attn_norm", 8))),
]
CASES = [*SIZES, *NOT_LOADED, *OUTPUTS]
