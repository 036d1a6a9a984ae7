"""Alterations of a checkpoint. Each function returns one: a function of the checkpoint's folder."""

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[1] / "support"
INDEX = "model.safetensors.index.json"


def nothing(ckpt):
    """Alters nothing."""


def read_shard(path):
    """Name to (dtype, shape, bytes)."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {
        name: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0] : begin + t["data_offsets"][1]])
        for name, t in header.items()
    }


def write_shard(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def all_tensors(ckpt):
    return {name: t for path in sorted(ckpt.glob("*.safetensors")) for name, t in read_shard(path).items()}


def merged(change):
    """The checkpoint in one shard without an index, its tensors as change(tensors) returns them."""

    def alter(ckpt):
        tensors = change(all_tensors(ckpt))
        for path in [*ckpt.glob("*.safetensors"), ckpt / INDEX]:
            path.unlink(missing_ok=True)
        write_shard(ckpt / "model.safetensors", tensors)

    return alter


def both(*alterations):
    def alter(ckpt):
        for a in alterations:
            a(ckpt)

    return alter


def support(script, *words):
    return lambda ckpt: subprocess.run([sys.executable, "-B", SUPPORT / script, ckpt, *words], check=True)


def without(*parts):
    """Without the tensors whose names contain a part; the index agrees."""
    return support("without_tensors.py", *parts)


def numbers(what, *parts):
    """zeros, nan, inf or -inf in tensors, as tests/support/change_tensors.py has it."""
    return support("change_tensors.py", what, *parts)


def renamed(pattern, replacement):
    return merged(lambda tensors: {re.sub(pattern, replacement, name): t for name, t in tensors.items()})


def mapped(pattern, change):
    """change(dtype, shape, bytes) of tensors whose names match."""
    return merged(lambda tensors: {n: change(*t) if re.search(pattern, n) else t for n, t in tensors.items()})


def added(pattern, suffix, tensor):
    """Beside each tensor whose whole name matches, another that ends in suffix instead of its last part."""

    def change(tensors):
        beside = {n.rsplit(".", 1)[0] + suffix: tensor for n in tensors if re.fullmatch(pattern, n)}
        assert beside, pattern
        return {**tensors, **beside}

    return merged(change)


def config(change):
    def alter(ckpt):
        says = json.loads((ckpt / "config.json").read_text())
        says = change(says) or says
        (ckpt / "config.json").write_text(json.dumps(says, indent=2))

    return alter


def settings(**values):
    return config(lambda says: says.update(values))


def text_settings(**values):
    return config(lambda says: says["text_config"].update(values))


def nested(key):
    """All of the config but its type, architecture and quantization in an object."""
    outside = ("architectures", "model_type", "quantization_config")
    return config(
        lambda says: {**{k: says[k] for k in outside}, key: {k: v for k, v in says.items() if k not in outside}}
    )


def file(name, data):
    def alter(ckpt):
        (ckpt / name).parent.mkdir(parents=True, exist_ok=True)
        (ckpt / name).write_bytes(data if isinstance(data, bytes) else data.encode())

    return alter


def cut(name, share):
    def alter(ckpt):
        data = (ckpt / name).read_bytes()
        (ckpt / name).write_bytes(data[: int(len(data) * share)])

    return alter


def replaced(name, old, new):
    def alter(ckpt):
        text = (ckpt / name).read_text()
        assert old in text, (name, old)
        (ckpt / name).write_text(text.replace(old, new, 1))

    return alter


def zeros_to_the_end(shard, count):
    def alter(ckpt):
        path = sorted(ckpt.glob("*.safetensors"))[shard]
        data = path.read_bytes()
        path.write_bytes(data[:-count] + bytes(count))

    return alter


def fused(tensors):
    """Experts one by one, as an engine holds them: w13_weight and w2_weight of all experts of a layer."""
    out, layers = {}, {}
    for name, tensor in tensors.items():
        m = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight\w*)", name)
        if m:
            layers.setdefault(m[1], {})[int(m[2]), m[3], "scale" in m[4]] = tensor
        else:
            out[name] = tensor
    for module, parts in layers.items():
        experts = 1 + max(e for e, _, _ in parts)
        for is_scale, suffix in ((False, "_weight"), (True, "_weight_scale")):
            for target, projections in (("w13", ("gate", "up")), ("w2", ("down",))):
                pieces = [parts[e, p, is_scale] for e in range(experts) for p in projections]
                dtype, (rows, columns), _ = pieces[0]
                shape = [experts, rows * len(projections), columns]
                out[f"{module}.{target}{suffix}"] = dtype, shape, b"".join(p[2] for p in pieces)
    assert layers
    return out


def stacked(tensors):
    """Experts one by one, all of a projection in one tensor."""
    out, of_name = {}, {}
    for name, tensor in tensors.items():
        m = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if m:
            of_name.setdefault(f"{m[1]}.{m[3]}", []).append((int(m[2]), tensor))
        else:
            out[name] = tensor
    for name, tensors_of in of_name.items():
        pieces = [t for _, t in sorted(tensors_of, key=lambda pair: pair[0])]
        out[name] = pieces[0][0], [len(pieces), *pieces[0][1]], b"".join(p[2] for p in pieces)
    assert of_name
    return out


def in_words(tensors):
    """GPT-OSS as MLX has it: gate and up apart, codes in words of eight, scales beside them."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        m = re.fullmatch(r"(.*\.experts)\.(gate_up|down)_proj_(blocks|scales|bias)", name)
        if not m:
            out[name] = dtype, shape, data
            continue
        experts, rows = shape[:2]
        size = len(data) // experts // rows
        lines = [[data[(e * rows + r) * size : (e * rows + r + 1) * size] for r in range(rows)] for e in range(experts)]
        suffix = {"blocks": "weight", "scales": "scales", "bias": "bias"}[m[3]]
        columns = {"blocks": [size // 4], "scales": [size], "bias": []}[m[3]]
        parts = {"down": slice(None)} if m[2] == "down" else {"gate": slice(0, None, 2), "up": slice(1, None, 2)}
        for part, of_rows in parts.items():
            chosen = [expert[of_rows] for expert in lines]
            out[f"{m[1]}.{part}_proj.{suffix}"] = (
                "U32" if m[3] == "blocks" else dtype,
                [experts, len(chosen[0]), *columns],
                b"".join(b"".join(expert) for expert in chosen),
            )
    return out
