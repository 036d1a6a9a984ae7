"""Checkpoints that are not, or not known to be, what was published."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from case import Case, Result, Wrong, lines_of, told, verdict_of
from checkpoint import flipped, replaced

HUB = Path(__file__).resolve().parents[1] / "cli/hub_files.py"
KIND, PROOF = "files are not as published", "an output is not as published"


def nothing(ckpt):
    pass


def sums_of(ckpt):
    files = sorted(p for p in ckpt.rglob("*") if p.is_file())
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(ckpt)}\n" for p in files)


def hub(*words):
    return subprocess.run(
        [sys.executable, "-B", HUB, *map(str, words)], check=True, capture_output=True, text=True
    ).stdout


def publish(bench, how):
    """Puts the checkpoint under "ckpt" again, as it was downloaded. Returns options of convert."""
    ckpt, kept = bench.ckpt, bench.folder / "kept"
    if how == "SHA256SUMS":
        (bench.folder / "SHA256SUMS").write_text(sums_of(ckpt))
        return ["--published", "SHA256SUMS"]
    if how == "tree":
        (bench.folder / "tree.json").write_text(hub("tree", ckpt))
        return ["--published", "tree.json"]
    ckpt.rename(kept)
    hub(how, kept, ckpt)
    shutil.rmtree(kept)
    return []


def files_of(bench):
    """Where the checkpoint's files can be changed: a hub cache has them under a snapshot, as links to blobs."""
    snapshots = bench.ckpt / "snapshots"
    return next(snapshots.iterdir()) if snapshots.exists() else bench.ckpt


def change(path, alter):
    """As alter does with a folder; links stay."""
    if path.suffix != ".safetensors":
        return alter(path.parent)
    data = bytearray(path.read_bytes())
    data[alter] ^= 1
    path.resolve().write_bytes(data)


def compare(how, name, alter):
    """convert with published hashes; `name` is then changed."""

    def act(bench):
        options = publish(bench, how)
        if name:
            change(files_of(bench) / name, alter)
        before = bench.names()
        done = bench.convert("ckpt", "out", *options)
        result = Result(verdict_of(done), lines_of(done))
        if result.verdict == "refused":
            if bench.names() != before:
                raise Wrong("left something behind")
            if bench.convert("ckpt", "out", *options, "--allow-incomplete").returncode != 2:
                raise Wrong("--allow-incomplete accepts it")
            if not options:
                without = bench.convert("ckpt", "out", "--no-published")
                if without.returncode or "published" in told(without):
                    raise Wrong(f"--no-published: {told(without)}")
        else:
            bench.must_say(bench.must(0, "verify", "out"), "right at level ", "verify")
        return result

    return act


def prove(alter):
    """verify --published of an output that was made of the altered checkpoint, without it."""

    def act(bench):
        (bench.folder / "SHA256SUMS").write_text(sums_of(bench.ckpt))
        alter(bench.ckpt)
        done = bench.convert("ckpt", "out")
        if done.returncode:
            raise Wrong(told(done))
        shutil.rmtree(bench.ckpt)
        bench.must_say(bench.must(0, "verify", "out"), "right at level ", "verify without the list")
        done = bench.run("verify", "out", "--published", "SHA256SUMS")
        if done.returncode == 0:
            return Result("right", lines_of(done))
        if done.returncode != 1 or "right at" in done.stdout:
            raise Wrong(f"exit {done.returncode}: {told(done)}")
        return Result("refused", lines_of(done))

    return act


def not_as(instance, model, how, name, alter, message):
    return Case(KIND, instance, model, nothing, "refused", f"^error: .*{message}", act=compare(how, name, alter))


CASES = [
    not_as(
        "one bit of a blob in a hub cache",
        "tiny/deepseek-v4",
        "cache",
        "model-00002-of-00005.safetensors",
        -1,
        r"model-00002-of-00005.safetensors: SHA-256 is .*as published \(cache\)",
    ),
    not_as(
        "one bit in the middle of the last shard in a hub cache",
        "mimo-v2.6-flash",
        "cache",
        "model-00002-of-00002.safetensors",
        150_000,
        r"SHA-256 is .*as published \(cache\)",
    ),
    not_as(
        "one bit of a download into a folder",
        "ling",
        "local",
        "model-00001-of-00002.safetensors",
        -1,
        r"SHA-256 is .*as published \(metadata\)",
    ),
    not_as(
        "an edited config.json of a download into a folder",
        "kimi-k2.5-quark",
        "local",
        "config.json",
        replaced("config.json", '"kimi_k2"', '"kimi_k2" '),
        r"config.json: Git's SHA-1 is .*as published \(metadata\)",
    ),
    not_as(
        "one bit, beside a SHA256SUMS",
        "kimi-k3",
        "SHA256SUMS",
        "model-00002-of-000002.safetensors",
        90_000,
        r"SHA-256 is .*as published \(SHA256SUMS\)",
    ),
    not_as(
        "an edited generation_config.json, beside the hub's list",
        "tiny/gpt-oss",
        "tree",
        "generation_config.json",
        replaced("generation_config.json", "{", "{ "),
        r"generation_config.json: [0-9]+ bytes, [0-9]+ as published \(tree.json\)",
    ),
    Case(
        KIND,
        "none is changed in a hub cache",
        "minimax-m2.7-quark",
        nothing,
        "right",
        r"^as published: [0-9]+ files \(cache\)",
        act=compare("cache", "", None),
    ),
    Case(
        KIND,
        "none is changed, beside the hub's list",
        "deepseek-v4-flash",
        nothing,
        "right",
        r"^as published: [0-9]+ files \(tree.json\)",
        act=compare("tree", "", None),
    ),
    Case(
        PROOF,
        "one bit of an expert in the last layer",
        "kimi-k2.5-quark",
        nothing,
        "refused",
        r"restored, its SHA-256 is .*as published",
        act=prove(flipped(r"layers\.3\.mlp\.experts\.7\.down_proj.weight$", 77)),
    ),
    Case(
        PROOF,
        "one bit of a norm in layer 1",
        "deepseek-v4-flash",
        nothing,
        "refused",
        r"restored, its SHA-256 is .*as published",
        act=prove(flipped(r"layers\.1\.attn_norm", 10)),
    ),
    Case(
        PROOF,
        "another value in config.json",
        "tiny/gpt-oss",
        nothing,
        "refused",
        r"^config.json: restored, its SHA-256 is",
        act=prove(replaced("config.json", '"rope_theta": 150000', '"rope_theta": 150001')),
    ),
    Case(
        PROOF,
        "nothing is changed",
        "qwen3.5-397b-a17b-quark",
        nothing,
        "right",
        r"^out: as published in SHA256SUMS: 4 files",
        act=prove(nothing),
    ),
    Case(
        PROOF,
        "nothing is changed",
        "ling",
        nothing,
        "right",
        r"^out: as published in SHA256SUMS: 4 files",
        act=prove(nothing),
    ),
]
