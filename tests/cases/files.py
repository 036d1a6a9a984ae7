"""Files beside the weights: pointers, JSON, hidden names, mounts, nested checkpoints, links."""

import hashlib
import os
import shutil
from pathlib import Path

from case import Case, Result, Wrong, convert_and_verify, lines_of, told, verdict_of
from checkpoint import INDEX, both, config, cut, file, nothing, replaced

POINTER, JSON, BROKEN, SMALL = (
    "a Git LFS pointer",
    "JSON with NaN and infinity, as Python writes it",
    "broken JSON",
    "an empty or cut small file",
)
HIDDEN, VOLUME, NESTED, SURPLUS = (
    "hidden names",
    "a volume of Kubernetes",
    "a checkpoint in a folder",
    "a shard that no index names",
)
LINKS, BLOBS = "links that leave the folder", "a hub cache whose blobs are elsewhere"
LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 27868174\n"
MAC = b"\0\5\26\7\0\2\0\0Mac OS X        "


def copied(name, to):
    def alter(ckpt):
        (ckpt / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ckpt / name, ckpt / to)

    return alter


def removed(name):
    return lambda ckpt: (ckpt / name).unlink()


def moved_out(*patterns):
    """Files into a folder beside the checkpoint, and links to them."""

    def alter(ckpt):
        outside = ckpt.parent / "elsewhere"
        outside.mkdir()
        for pattern in patterns:
            path = sorted(ckpt.glob(pattern))[-1]
            path.rename(outside / path.name)
            path.symlink_to(Path("../elsewhere") / path.name)

    return alter


def in_volume(ckpt):
    """As Kubernetes mounts a ConfigMap or a CSI volume: files are links to ..data/, which is a link, too."""
    inner = ckpt / "..2026_05_04"
    inner.mkdir()
    for path in [p for p in ckpt.iterdir() if p != inner]:
        path.rename(inner / path.name)
    (ckpt / "..data").symlink_to(inner.name)
    for path in sorted(inner.iterdir()):
        (ckpt / path.name).symlink_to(Path("..data") / path.name)


def lacks_in_out(*parts):
    """As convert_and_verify; no path in OUT has one of the parts."""

    def act(bench):
        result = convert_and_verify(bench)
        found = [p for p in bench.names() if p.startswith("out/") and any(part in p for part in parts)]
        if found:
            raise Wrong(f"in OUT: {found}")
        return result

    return act


def same_in_out(name):
    """As convert_and_verify; unpack restores the file."""

    def act(bench):
        result = convert_and_verify(bench)
        bench.must(0, "unpack", "out", "unpacked", "-q")
        if (bench.folder / "unpacked" / name).read_bytes() != (bench.ckpt / name).read_bytes():
            raise Wrong(f"{name} is another after unpack")
        return result

    return act


def from_cache(bench):
    """The checkpoint as a snapshot of a hub cache; its blobs are a link to another folder."""
    repository, disk = bench.folder / "hub/models--some--model", bench.folder / "disk"
    snapshot = repository / "snapshots/abc"
    for folder in (snapshot, disk, repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "blobs").symlink_to(disk)
    (repository / "refs/main").write_text("abc")
    for path in bench.ckpt.iterdir():
        blob = hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copy(path, disk / blob)
        os.symlink(f"../../blobs/{blob}", snapshot / path.name)
    bench.environment["HF_HUB_CACHE"] = str(bench.folder / "hub")
    inspected = bench.must(0, "inspect", "some/model")
    if "error" in inspected.stderr:
        raise Wrong(told(inspected))
    done = bench.convert("some/model", "out")
    bench.must_say(bench.must(0, "verify", "out", "--source", "ckpt"), "right at level", "verify")
    return Result(verdict_of(done), lines_of(done))


POINTERS = [
    Case(POINTER, "tokenizer.json", "tiny/deepseek-v4", file("tokenizer.json", LFS)),
    Case(POINTER, "a file of a folder", "kimi-k3", file("assets/vocab/merges.txt", LFS)),
    Case(POINTER, "the last shard", "ling", file("model-00002-of-00002.safetensors", LFS)),
    Case(POINTER, "the index", "mimo-v2.6-flash", file(INDEX, LFS)),
]
NUMBERS = [
    Case(JSON, "Infinity in config.json", "mimo-v2.6-flash", config(lambda says: says.update(rope_limit=float("inf"))),
        act=same_in_out("config.json")),
    Case(JSON, "NaN and -Infinity in generation_config.json", "kimi-k3",
        file("generation_config.json", '{"temperature": NaN, "penalty": -Infinity}'),
        act=same_in_out("generation_config.json")),
    Case(JSON, "Infinity in tokenizer_config.json", "tiny/deepseek-v4",
        file("tokenizer_config.json", '{"model_max_length": Infinity}'), act=same_in_out("tokenizer_config.json")),
    Case(JSON, "NaN for the number of layers", "ling",
        replaced("config.json", '"num_experts": 8', '"num_experts": NaN')),
]
WRONG_JSON = [
    Case(BROKEN, "a comma too many in config.json", "ling",
        replaced("config.json", '"hidden_size": 128,', '"hidden_size": 128,,')),
    Case(BROKEN, "a word without quotes in config.json", "gpt-oss-20b",
        replaced("config.json", '"gpt_oss"', "gpt_oss")),
    Case(BROKEN, "an index that was cut", "deepseek-v4-flash", cut(INDEX, 0.6)),
]
FILES = [
    Case(SMALL, "tokenizer.json of 0 bytes", "kimi-k2.5-quark", file("tokenizer.json", ""), allowed=True),
    Case(SMALL, "tokenizer_config.json that was cut", "tiny/deepseek-v4",
        file("tokenizer_config.json", '{"a": [1, 2'), allowed=True),
    Case(SMALL, "tokenizer.model of zeros", "ling", file("tokenizer.model", bytes(2000)), allowed=True),
    Case(SMALL, "generation_config.json with zeros behind", "gpt-oss-20b",
        file("generation_config.json", b'{"a": 1}\0\0\0'), allowed=True),
    Case(SMALL, "an empty chat_template.jinja", "gpt-oss-20b", file("chat_template.jinja", ""), allowed=True),
    Case(SMALL, "empty files that may be so, and a key twice", "gpt-oss-20b",
        both(file("__init__.py", ""), file("merges.txt", ""), file("generation_config.json", '{"a": 1, "a": 2}'))),
    Case(SMALL, "notes.json that was cut", "minimax-m2.7-quark", file("notes.json", '{"a": 1')),
]
NAMES = [
    Case(HIDDEN, "._model.safetensors beside shards without an index", "qwen3.5-397b-a17b-quark",
        both(removed(INDEX), file("._model.safetensors", MAC)), act=lacks_in_out("/._")),
    Case(HIDDEN, "._config.json, .DS_Store and files in folders", "tiny/deepseek-v4",
        both(file("._config.json", MAC), file(".DS_Store", MAC),
            file("assets/._a.txt", MAC), file("assets/a.txt", "a")),
        act=lacks_in_out("/.")),
    Case(VOLUME, "with an index", "minimax-m2.7-quark", in_volume, act=lacks_in_out("/..")),
    Case(VOLUME, "without an index", "kimi-k3", both(removed(INDEX), in_volume), act=lacks_in_out("/..")),
]
FOLDERS = [
    Case(NESTED, "a draft model in eagle/", "kimi-k2.5-quark",
        both(copied("config.json", "eagle/config.json"),
            copied("model-00001-of-000002.safetensors", "eagle/model.safetensors")),
        act=lacks_in_out("eagle")),
    Case(NESTED, "weights in a folder of drafts/dspark/", "deepseek-v4-flash",
        both(copied("config.json", "drafts/dspark/config.json"), file("drafts/dspark/weights/model.bin", b"1" * 5000),
            file("drafts/notes.txt", "a")),
        act=lacks_in_out("dspark")),
    Case(NESTED, "a config without weights", "ling", copied("config.json", "vision/config.json"),
        act=same_in_out("vision/config.json")),
    Case(SURPLUS, "mtp.safetensors", "glm-5.2-quark", copied("model-00001-of-000002.safetensors", "mtp.safetensors"),
        act=lacks_in_out("mtp.safe")),
    Case(SURPLUS, "two, before and behind the others", "gpt-oss-20b",
        both(copied("model-00001-of-00001.safetensors", "consolidated.safetensors"),
            copied("model-00001-of-00001.safetensors", "z.safetensors"))),
]
FOLLOW = ("--follow-links",)
LEAVING = [
    Case(LINKS, "the last shard", "ling", moved_out("*.safetensors")),
    Case(LINKS, "config.json", "tiny/deepseek-v4", moved_out("config.json")),
    Case(LINKS, "the last shard, --follow-links", "mimo-v2.6-flash", moved_out("*.safetensors"), convert=FOLLOW,
        inspect=FOLLOW),
    Case(LINKS, "config.json and the index, --follow-links", "kimi-k3", moved_out("config.json", INDEX), convert=FOLLOW,
        inspect=FOLLOW),
    Case(BLOBS, "as a whole", "tiny/deepseek-v4", nothing, act=from_cache),
    Case(BLOBS, "as a whole", "kimi-k2.5-quark", nothing, act=from_cache),
]
CASES = [*POINTERS, *NUMBERS, *WRONG_JSON, *FILES, *NAMES, *FOLDERS, *LEAVING]
