#!/usr/bin/env python3
"""Which damage each level of verify sees. usage: levels/run.py MXFP4-PACK SOURCE-DIR

Prints the table of tests/levels/README.md, which has the terms, and fails if the table there differs.
"""
import difflib
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/loaders"))
from xxh3 import hexdigest  # noqa: E402

BEGIN, END = "<!-- levels -->\n", "<!-- end of levels -->\n"
VLLM = ("--engine", "vllm==0.33.0")  # not the newest, because the table has the diagnoses of its layout
COLUMNS = {"files": ("files", False), "bytes": ("bytes", False), "files, CKPT": ("files", True),
           "bytes, CKPT": ("bytes", True), "kernels, CKPT": ("kernels", True)}
LAYER = "model.layers.0.mlp.experts."
PACKED, COPIED = "packed/packed-00001.safetensors", "rest-00001.safetensors"


def tensors(path):
    """Name to (begin, end, experts) in the file."""
    with open(path, "rb") as f:
        length = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(length))
    return {name: (8 + length + t["data_offsets"][0], 8 + length + t["data_offsets"][1], t["shape"][0])
            for name, t in header.items() if name != "__metadata__"}


def get(path, name):
    begin, end, _ = tensors(path)[name]
    return path.read_bytes()[begin:end]


def put(path, name, data):
    begin, end, _ = tensors(path)[name]
    whole = path.read_bytes()
    assert len(data) == end - begin
    path.write_bytes(whole[:begin] + data + whole[end:])


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def checksum(data, experts):
    size = len(data) // experts
    slices = (data[i * size:(i + 1) * size] for i in range(experts))
    return hexdigest(b"".join(bytes.fromhex(hexdigest(s)) for s in slices))


def seal(out, manifest):
    """Writes the manifest with its own checksum, all files listed as they are."""
    for listed in manifest["files"]:
        data = (out / listed["name"]).read_bytes()
        if "xxh3_128" in listed:
            listed |= {"bytes": len(data), "xxh3_128": hexdigest(data)}
    text = json.dumps(manifest | {"xxh3_128": "0" * 32}, indent=1, ensure_ascii=False) + "\n"
    (out / "mxfp4-pack.json").write_text(text.replace("0" * 32, hexdigest(text.encode()), 1))


def contents_checksum(out, manifest):
    """config.json's checksum of the packed tensors, as mxfp4-pack-format(5) describes it."""
    lines = [manifest["source"]["fingerprint"]]
    for number, of_set in enumerate(manifest["sets"]):
        tensors_ = [json.loads(line) for line in (out / of_set["table"]).read_text().splitlines()]
        tensors_.sort(key=lambda t: (t["rank"], t["name"].encode()))
        lines += [f"{number} {t['rank']} {t['name']} {t['xxh3_128']}" for t in tensors_]
    return hexdigest("".join(line + "\n" for line in lines).encode())


def put_sealed(out, changes):
    """New data of packed tensors, and their checksums in all that has them."""
    path, table = out / PACKED, out / "packed/tensors-0.jsonl"
    manifest, text = json.loads((out / "mxfp4-pack.json").read_text()), table.read_text()
    for name, data in changes.items():
        experts = tensors(path)[name][2]
        before = checksum(get(path, name), experts)
        assert before in text, name
        text = text.replace(before, checksum(data, experts))
        put(path, name, data)
    table.write_text(text)
    config = (out / "config.json").read_text()
    own = json.loads(config)["quantization_config"]["mxfp4_pack"]["checksum"]
    (out / "config.json").write_text(config.replace(own, contents_checksum(out, manifest)))
    seal(out, manifest)


def bit_of(tensor, at=100):
    return lambda bench, out: flip(out / PACKED, tensors(out / PACKED)[LAYER + tensor][0] + at)


def bit_in(name, at):
    return lambda bench, out: flip(out / name, at)


def pad(bench, out):
    begin, end, experts = tensors(out / PACKED)[LAYER + "w13_bias"]
    flip(out / PACKED, begin + (end - begin) // experts - 1)


def copied(bench, out):
    flip(out / COPIED, tensors(out / COPIED)["lm_head.weight"][0])


def exchange(bench, out):
    (out / "README.md").rename(out / "other")
    (out / "LICENSE").rename(out / "README.md")
    (out / "other").rename(out / "LICENSE")


def exchange_layers(bench, out):
    path, other = out / PACKED, LAYER.replace("0", "1") + "w13_weight"
    first, second = get(path, LAYER + "w13_weight"), get(path, other)
    put(path, LAYER + "w13_weight", second)
    put(path, other, first)


def sealed_bit(bench, out):
    data = bytearray(get(out / PACKED, LAYER + "w13_weight"))
    data[100] ^= 1
    put_sealed(out, {LAYER + "w13_weight": bytes(data)})


def sealed_pad(bench, out):
    name = LAYER + "w13_bias"
    data = bytearray(get(out / PACKED, name))
    data[len(data) // 3 - 1] ^= 1
    put_sealed(out, {name: bytes(data)})


def swapped_experts(bench, out):
    changes = {}
    for name, (begin, end, experts) in tensors(out / PACKED).items():
        if name.startswith(LAYER):
            data, size = get(out / PACKED, name), (end - begin) // experts
            changes[name] = data[size:2 * size] + data[:size] + data[2 * size:]
    put_sealed(out, changes)


def row_order(bench, out):
    """w13 as SGLang holds it."""
    theirs = {"w13_weight": "w13_weight", "w13_weight_scale": "w13_weight_scale", "w13_bias": "w13_weight_bias"}
    other = bench.folder / "sglang" / PACKED
    put_sealed(out, {LAYER + ours: get(other, LAYER + name) for ours, name in theirs.items()})


def random_codes(bench, out):
    put_sealed(out, {LAYER + "w13_weight": random.Random(1).randbytes(len(get(out / PACKED, LAYER + "w13_weight")))})


def sealed_setting(bench, out):
    manifest = json.loads((out / "mxfp4-pack.json").read_text())
    for holder in (manifest["model"], manifest["sets"][0]["model"]):
        assert holder["activation"]["limit"] == 7
        holder["activation"]["limit"] = 6.0
    seal(out, manifest)


def source_tensor(name, at):
    """A bit of one of the checkpoint's tensors."""
    def change(ckpt):
        for shard in ckpt.glob("*.safetensors"):
            if name in tensors(shard):
                flip(shard, tensors(shard)[name][0] + at)
    return change


def source_file(name, old, new):
    def change(ckpt):
        text = (ckpt / name).read_text()
        assert old in text
        (ckpt / name).write_text(text.replace(old, new, 1))
    return change


# the change of an output; for a function of a checkpoint, the output is made from the changed checkpoint
DAMAGES = {
    "a bit of the codes": bit_of("w13_weight"),
    "a bit of the scales": bit_of("w13_weight_scale"),
    "a bit of a bias": bit_of("w13_bias", 10),
    "a bit of a pad": pad,
    "a bit of a copied tensor": copied,
    "a bit of a tensor file's header": bit_in(PACKED, 40),
    "a bit of the manifest": bit_in("mxfp4-pack.json", 200),
    "a bit of config.json": bit_in("config.json", 60),
    "a bit of the index": bit_in("model.safetensors.index.json", 60),
    "a bit of a companion": bit_in("README.md", 5),
    "a bit of the canary": bit_in("packed/canary-0.safetensors", 3000),
    "two files exchanged": exchange,
    "two layers' codes exchanged": exchange_layers,
    "a file too many": lambda bench, out: (out / "model.safetensors").write_bytes(b"x"),
    "a file cut short": lambda bench, out: os.truncate(out / "README.md", 5),
    "a file missing": lambda bench, out: (out / "README.md").unlink(),
    "re-sealed: a bit of the codes": sealed_bit,
    "re-sealed: a bit of a pad": sealed_pad,
    "re-sealed: two experts swapped": swapped_experts,
    "re-sealed: w13 in another row order": row_order,
    "re-sealed: random codes": random_codes,
    "re-sealed: the clamp's limit in the manifest": sealed_setting,
}
OTHER_CHECKPOINTS = {
    "other checkpoint: a bit of an expert's codes": source_tensor(LAYER + "gate_up_proj_blocks", 100),
    "other checkpoint: a bit of lm_head": source_tensor("lm_head.weight", 0),
    "other checkpoint: swiglu_limit in config.json": source_file("config.json", '"swiglu_limit": 7.0', '"swiglu_limit": 6.0'),
    "other checkpoint: a companion": source_file("generation_config.json", "{", "{ "),
}


class Bench:
    def __init__(self, program, root, folder):
        self.program, self.folder = program, folder
        self.source = root / "testdata/tiny/gpt-oss"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MXFP4_PACK_")}
        self.env |= {"MXFP4_PACK_DEVICE": "cpu", "XDG_CACHE_HOME": "", "HOME": ""}
        self.convert(self.source, "marlin", "marlin", *VLLM)
        self.convert(self.source, "sglang", "marlin", "--engine", "sglang")

    def convert(self, source, name, backend, *options):
        subprocess.run([self.program, "convert", source, self.folder / name, "--backend", backend, *options,
                        "--no-loader", "-q"], env=self.env, check=True)

    def damaged(self, name):
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        if name in OTHER_CHECKPOINTS:
            ckpt = self.folder / "ckpt"
            shutil.rmtree(ckpt, ignore_errors=True)
            shutil.copytree(self.source, ckpt)
            OTHER_CHECKPOINTS[name](ckpt)
            self.convert(ckpt, "out", "marlin", *VLLM)
        else:
            shutil.copytree(self.folder / "marlin", out)
            DAMAGES[name](self, out)
        return out

    def sees(self, out, level, source):
        """(whether verify finds the change, the report on computed layers, if there are any)"""
        given = ["--source", source] if source else []
        run = subprocess.run([self.program, "verify", out, *given, "--level", level, "--json"], env=self.env,
                             capture_output=True, text=True)
        assert run.returncode in (0, 1, 2), run.stderr
        sets = json.loads(run.stdout).get("sets", [])
        checks = [c for s in sets for c in s.get("kernels", {}).get("checks", [])]
        wrong = [c["diagnosis"] or "unexplained" for c in checks if not c["ok"]]
        return run.returncode != 0, wrong[0] if wrong else "right" if checks else "not computed"

    def row(self, name):
        out, cells = self.damaged(name), []
        for level, with_source in COLUMNS.values():
            seen, computed = self.sees(out, level, self.source if with_source else None)
            cells.append("sees" if seen else "-")
        return f"| {name} | " + " | ".join([*cells, computed]) + " |\n"


def main():
    program, root = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(program, root, pathlib.Path(folder))
        table = "| damage | " + " | ".join(COLUMNS) + " | layers computed |\n" + "|---" * (len(COLUMNS) + 2) + "|\n"
        table += "".join(bench.row(name) for name in [*DAMAGES, *OTHER_CHECKPOINTS])
    print(table, end="")
    said = re.search(re.escape(BEGIN) + "(.*)" + re.escape(END), (root / "tests/levels/README.md").read_text(), re.S)
    if not said or said[1] != table:
        print("FAILED: the table in tests/levels/README.md (-) differs:")
        print("".join(difflib.unified_diff(said[1].splitlines(True) if said else [], table.splitlines(True), n=0)), end="")
        return 1
    return 0


sys.exit(main())
