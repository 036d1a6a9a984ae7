"""Writes small packed checkpoints by hand, as mxfp4-pack-format(5) describes them."""

import copy
import json
import os
import shutil
import tempfile
from functools import lru_cache

import torch
from safetensors.torch import save_file

import formats
import xxh3
from golden import golden_layer
from mxfp4_pack import in_memory_order

DTYPE = {torch.int32: "I32", torch.uint8: "U8", torch.float8_e8m0fnu: "F8_E8M0", torch.bfloat16: "BF16",
             torch.float32: "F32"}


SOURCE_TABLE = "packed/source-tensors.jsonl"


def read_whole(directory):
    """The manifest with what the tables say: each set has its `tensors`, and the manifest `source_tensors`."""
    with open(os.path.join(directory, "mxfp4-pack.json")) as file:
        manifest = json.load(file)
    for set_ in manifest["sets"]:
        set_["tensors"] = read_lines(directory, set_["table"])
    return manifest | {"source_tensors": read_lines(directory, SOURCE_TABLE)}


def read_lines(directory, name):
    with open(os.path.join(directory, name)) as file:
        return [json.loads(line) for line in file]


def write_manifest(directory, manifest):
    """mxfp4-pack.json with its own checksum, and the tables of what read_whole() gives."""
    manifest = copy.deepcopy(manifest)
    sets = manifest.get("sets")
    for set_ in sets if isinstance(sets, list) else []:
        if isinstance(set_, dict) and isinstance(set_.get("tensors"), list):
            write_table(directory, manifest.get("files"), set_.get("table"), "table", set_.pop("tensors"))
    if isinstance(manifest.get("source_tensors"), list):
        write_table(directory, manifest.get("files"), SOURCE_TABLE, "source_table", manifest.pop("source_tensors"))
    text = json.dumps({"xxh3_128": "0" * 32} | manifest | {"xxh3_128": "0" * 32})
    with open(os.path.join(directory, "mxfp4-pack.json"), "w") as file:
        file.write(text.replace("0" * 32, xxh3.hexdigest(text.encode()), 1))


def write_table(directory, files, name, kind, lines):
    """A table that is listed, if the manifest has a list and the table is one of the directory's."""
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    if isinstance(name, str) and isinstance(files, list) and os.path.dirname(name) == "packed" and name.endswith(".jsonl"):
        with open(os.path.join(directory, name), "wb") as file:
            file.write(data)
        files[:] = [f for f in files if not isinstance(f, dict) or f.get("name") != name]
        files.append({"name": name, "kind": kind, "bytes": len(data), "xxh3_128": xxh3.hexdigest(data)})


def tensor_checksum(tensor):
    """Of the list of its experts' checksums."""
    slices = [t.contiguous().view(torch.uint8).numpy().tobytes() for t in tensor]
    return xxh3.hexdigest(b"".join(bytes.fromhex(xxh3.hexdigest(data)) for data in slices))


def random_layer(seed, experts, hidden, intermediate, bias):
    """An unpacked layer with all 16 codes and a range of scales."""
    g = torch.Generator().manual_seed(seed)
    layer = {}
    for role, rows, k in (("w13", 2 * intermediate, hidden), ("w2", hidden, intermediate)):
        layer[role, "codes"] = torch.randint(0, 256, (experts, rows, k // 2), generator=g, dtype=torch.uint8)
        layer[role, "scales"] = torch.randint(110, 135, (experts, rows, k // 32), generator=g, dtype=torch.uint8)
        if bias:
            layer[role, "bias"] = torch.randn((experts, rows), generator=g).to(torch.bfloat16)
    return layer


def parameter_name(engine, backend, model_type, role, part):
    if part == "codes":
        return f"{role}_weight"
    if part == "bias":
        return f"{role}_bias" if engine == "vllm" else f"{role}_weight_bias"
    inv = engine == "sglang" and backend == "flashinfer-cutlass" and model_type == "deepseek_v4"
    return f"{role}_weight_scale_inv" if inv else f"{role}_weight_scale"


class Checkpoint:
    """layers: {(namespace, number): raw layer of all ranks together, or a list with one for each MoE TP rank}"""

    def __init__(self, engine, backend, model_type, hidden, intermediate, layers, pairs=None):
        self.engine, self.backend, self.model_type = engine, backend, model_type
        self.hidden, self.intermediate, self.layers = hidden, intermediate, layers
        self.pairs = model_type == "gpt_oss" if pairs is None else pairs
        self.swiglu_limit = 7.0 if model_type == "gpt_oss" else 10.0
        self.tp_size = max(len(raw) if isinstance(raw, list) else 1 for raw in layers.values())

    @property
    def padded(self):
        return formats.padded_sizes(self.engine, self.backend, self.hidden, self.intermediate)

    def convert(self, raw):
        scale_pad = formats.PADDING[self.engine, self.backend][2]
        return formats.converted(self.engine, self.backend, formats.pad(raw, self.pairs, *self.padded, scale_pad),
                                 self.pairs)

    @lru_cache(maxsize=None)
    def expected(self, key, rank=0):
        raw = self.layers[key]
        return self.convert(raw[rank] if isinstance(raw, list) else raw)

    def setting(self):
        """The engine's name for the backend."""
        if self.engine == "sglang":
            names = {"flashinfer-cutlass": "flashinfer_mxfp4", "triton-hopper": "triton_kernel"}
            return {"moe_runner_backend": names.get(self.backend, self.backend)}
        triton = "triton" if self.model_type == "gpt_oss" else "triton_unfused"
        return {"moe_backend": triton if self.backend == "triton-hopper" else self.backend.replace("-", "_")}

    def name(self, role, part):
        return parameter_name(self.engine, self.backend, self.model_type, role, part)

    @lru_cache(maxsize=None)
    def canary(self):
        """256 plus the model's remainder in each direction, as large as the engine pads it."""
        h, i = (256 + size % 256 for size in self.padded)
        raw = random_layer(99, 2, h, i, self.model_type == "gpt_oss")
        suffix = {"codes": "", "scales": "_scale", "bias": "_bias"}
        out = formats.converted(self.engine, self.backend, raw, self.pairs)
        return ({f"in.{role}{suffix[part]}": t.contiguous() for (role, part), t in raw.items()}
                | {f"out.{self.name(*key)}": in_memory_order(t).contiguous().clone() for key, t in out.items()})

    def write(self, directory, **changes):
        os.makedirs(os.path.join(directory, "packed"))
        module = "model.layers.{}.mlp.experts" if self.model_type == "gpt_oss" else "layers.{}.ffn.experts"
        entries = []
        for rank in range(self.tp_size):
            stored = {}
            for namespace, number in self.layers:
                file = "packed/packed-00001.safetensors" if self.tp_size == 1 else (
                    f"packed/tp{self.tp_size}-rank{rank}-00001.safetensors")
                prefix = module.format(number) if namespace == "model" else f"mtp.{number}.ffn.experts"
                for key, t in self.expected((namespace, number), rank).items():
                    name = f"{prefix}.{self.name(*key)}"
                    stored[name] = in_memory_order(t).contiguous()
                    entry = {"name": name, "parameter": self.name(*key), "namespace": namespace, "layer": number,
                             "file": file, "role": key[0], "part": key[1], "dtype": DTYPE[t.dtype], "torch_dtype": str(t.dtype)[6:],
                             "shape": list(stored[name].shape), "experts": t.shape[0],
                             "xxh3_128": tensor_checksum(stored[name])}
                    if self.tp_size > 1:
                        entry["rank"] = rank
                    if not t.is_contiguous():
                        entry["view"] = {"dtype": str(t.dtype)[6:], "shape": list(t.shape),
                                         "strides": list(t.stride())}
                    entries.append(entry)
            save_file(stored, os.path.join(directory, file))
        save_file(self.canary(), os.path.join(directory, "packed/canary-0.safetensors"))
        set_ = {"engine": self.engine, "backend": self.backend, "layout_version": "1",
                "requires": {"unset:MXFP4_PACK_TEST_VARIABLE": ""} | self.setting(), "moe_tp_size": self.tp_size,
                "canary": "packed/canary-0.safetensors", "table": "packed/tensors-0.jsonl",
                "model": {"hidden": self.hidden, "intermediate": self.intermediate, "padded_hidden": self.padded[0],
                          "padded_intermediate": self.padded[1], "activation": {"name": "silu", "limit": self.swiglu_limit}},
                "tensors": entries}
        manifest = {"format_version": 3, "source": {"model_type": self.model_type}, "files": [],
                    "source_tensors": [], "sets": [set_]} | changes
        write_manifest(directory, manifest)
        source = {"quant_method": "mxfp4" if self.model_type == "gpt_oss" else "fp8"}
        mark = {"format_version": manifest["format_version"], "engine": self.engine, "backend": self.backend,
                "layout_version": "1", "manifest": "mxfp4-pack.json"}
        config = {"model_type": self.model_type,
                  "num_hidden_layers": sum(namespace == "model" for namespace, _ in self.layers),
                  "quantization_config": source | {"quant_method": "mxfp4_pack", "mxfp4_pack": mark,
                                                   "source_quantization_config": source}}
        with open(os.path.join(directory, "config.json"), "w") as file:
            json.dump(config, file)
        return directory


@lru_cache(maxsize=None)
def golden_checkpoint(engine, family, backend):
    raw, pairs = golden_layer(family)
    hidden, intermediate = raw["w13", "codes"].shape[2] * 2, raw["w2", "codes"].shape[2] * 2
    return Checkpoint(engine, backend, "gpt_oss" if pairs else "deepseek_v4", hidden, intermediate, {("model", 0): raw})


def gpt_oss(engine, backend, layers=None):
    if layers:
        return Checkpoint(engine, backend, "gpt_oss", 320, 352, layers)
    return golden_checkpoint(engine, "gpt_oss", backend)


def deepseek(engine, backend, layers=None):
    if layers:
        return Checkpoint(engine, backend, "deepseek_v4", 256, 128, layers)
    return golden_checkpoint(engine, "deepseek", backend)


def merged(directory, *checkpoints):
    """One packed directory with a set of each: the first's, and the others' as set1, set2 .."""
    checkpoints[0].write(directory)
    manifest = read_whole(directory)
    for number, checkpoint in enumerate(checkpoints[1:], 1):
        with tempfile.TemporaryDirectory() as parent:
            other = checkpoint.write(os.path.join(parent, "out"))
            set_ = read_whole(other)["sets"][0]

            def moved(name):
                new = name.replace("packed/", f"packed/set{number}-")
                if not os.path.exists(os.path.join(directory, new)):
                    shutil.copyfile(os.path.join(other, name), os.path.join(directory, new))
                return new

            set_["canary"] = moved(set_["canary"])
            set_["table"] = f"packed/tensors-{number}.jsonl"
            for tensor in set_["tensors"]:
                tensor["file"] = moved(tensor["file"])
            manifest["sets"].append(set_)
    write_manifest(directory, manifest)


def flip_canary(out):
    """Changes the last byte of the packed canary."""
    path = os.path.join(out, "packed", next(n for n in os.listdir(os.path.join(out, "packed")) if "canary" in n))
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read()[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    return out
