"""Common parts of the scripts of both engines. MXFP4_PACK names the program that makes and converts checkpoints. Also
here: a rank's experts in the form of the engine's own weight loader, and the tested cells of matrix.json."""

import glob
import json
import os
import re
import subprocess
import tempfile
import unittest
from contextlib import ExitStack

import numpy
import torch

import formats
from mxfp4_pack.learn.engine import Engine, learn_from
from mxfp4_pack.learn.layout import to_text
from mxfp4_pack.learn.model import read_model
from raw_layers import gpt_oss_layers, tensors_of

MODELS = {"gpt-oss": "gpt-oss-20b", "deepseek-v4": "deepseek-v4-flash", "deepseek-v4.1": "deepseek-v4.1-flash",
          "kimi-k3": "kimi-k3", "ling": "ling", "mimo": "mimo-v2.6-flash", "compressed-tensors": "qwen3-30b-a3b-ct",
          "quark": "kimi-k2.5-quark", "auto-round": "qwen3-30b-a3b-autoround"}
PROJECTIONS = {"w1": ("w13", 0), "gate_proj": ("w13", 0), "w3": ("w13", 1), "up_proj": ("w13", 1), "w2": ("w2", 0),
               "down_proj": ("w2", 0)}
BY_FILE = "; a layout file that was learned of it"
PARTS = {"weight": "codes", "weight_packed": "codes", "scale": "scales", "weight_scale": "scales",
         "weight_scale_inv": "scales"}


class Source:
    """A random checkpoint of a family, which `synth` makes with these arguments."""

    def __init__(self, family, parent, *arguments):
        self.family, self.directory = family, os.path.join(parent, family)
        run("synth", MODELS[family], self.directory, *arguments)
        of = read_model(self.directory)
        self.config, self.model_type, self.pairs, self.intermediate = of.config, of.model_type, of.is_gpt_oss, of.intermediate

    def convert(self, out, engine, backend, layout, tp):
        run("convert", self.directory, out, "--engine", engine, "--backend", backend, "--layout-version", layout,
            "--tp-size", tp, "--no-loader")

    def rank(self, tp, rank):
        """(first packed layer's number, its experts on a rank without pads)"""
        tensors = tensors_of(self.directory)
        layers = {n: layer for (_, n), layer in gpt_oss_layers(tensors, self.config).items()} if self.pairs else (
            separate_experts(tensors))
        number = min(layers)
        self.hidden_of_experts = layers[number]["w13", "codes"].shape[2] * 2
        return number, sliced(layers[number], self.pairs, tp, rank)


class WithSources(unittest.TestCase):
    """Tests that share one source for each family and sizes (hidden, intermediate). as_on_a_gpu(case, family) and
    runner_of(case) are an engine's."""

    @classmethod
    def setUpClass(cls):
        cls.parent = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.parent.cleanup)
        cls.sources = {}

    def convert_learned(self, source, engine, case, out):
        """By a layout file that is learned of the installed engine, for one rank."""
        with ExitStack() as self.stack:
            self.as_on_a_gpu(case, source.family)
            learned, made_with = learn_from(Engine(engine, source.directory, self.runner_of(case), 1))
        with open(out + ".json", "w") as file:
            file.write(to_text("learned", engine, learned, made_with))
        run("convert", source.directory, out, "--layout", file.name, "--no-loader")

    def source(self, family, sizes, zero_scales=True):
        key = family, sizes, zero_scales
        if key not in self.sources:
            directory = tempfile.mkdtemp(dir=self.parent.name)
            hidden, intermediate = sizes
            self.sources[key] = Source(family, directory, "--tiny", "--hidden", hidden, "--intermediate", intermediate)
            if not zero_scales:
                raise_zero_scales(self.sources[key].directory)
        return self.sources[key]


def raise_zero_scales(directory):
    """Scale bytes of 0, which `synth` gives to groups of zeros, become 1."""
    for path in glob.glob(os.path.join(directory, "*.safetensors")):
        data = numpy.memmap(path, mode="r+")
        begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
        for name, tensor in json.loads(data[8:begin].tobytes()).items():
            if re.search(r"experts\.\d+\..*scale", name):
                first, end = tensor["data_offsets"]
                scales = data[begin + first:begin + end]
                scales[scales == 0] = 1


def run(*arguments):
    subprocess.run([os.environ["MXFP4_PACK"], *map(str, arguments), "-q"], check=True)


def separate_experts(tensors):
    """{number: layer} of the model's own layers, experts stored one by one."""
    found = {}
    for name, tensor in tensors.items():
        match = re.search(r"(?<!mtp\.)layers\.(\d+)\.[a-z_.]*experts\.(\d+)\.(\w+)\.(\w+)$", name)
        if match and match[3] in PROJECTIONS and match[4] in PARTS and not name.startswith("mtp"):
            (role, half), part = PROJECTIONS[match[3]], PARTS[match[4]]
            found.setdefault(int(match[1]), {}).setdefault((role, part), {})[int(match[2]), half] = tensor.view(torch.uint8)
    return {number: {key: stacked(experts) for key, experts in layer.items()} for number, layer in found.items()}


def stacked(experts):
    """{(expert, half): rows} -> [experts, rows of all halves, columns]"""
    halves = sorted({half for _, half in experts})
    numbers = sorted({expert for expert, _ in experts})
    return torch.stack([torch.cat([experts[e, half] for half in halves]) for e in numbers])


def sliced(layer, pairs, tp, rank):
    """A rank's share: whole groups of 32; the bias of w2 is the first rank's."""
    columns = layer["w2", "scales"].shape[2] * 32
    share = -(-columns // 32 // tp) * 32
    begin, end = min(rank * share, columns), min((rank + 1) * share, columns)

    def rows(t):
        if pairs:
            return t[:, 2 * begin:2 * end]
        return torch.cat([half[:, begin:end] for half in t.chunk(2, dim=1)], dim=1)

    out = {key: rows(t) for key, t in layer.items() if key[0] == "w13"}
    out["w2", "codes"] = layer["w2", "codes"][:, :, begin // 2:end // 2]
    out["w2", "scales"] = layer["w2", "scales"][:, :, begin // 32:end // 32]
    if ("w2", "bias") in layer:
        out["w2", "bias"] = layer["w2", "bias"] if rank == 0 else torch.zeros_like(layer["w2", "bias"])
    return out


def padded(layer, pairs, hidden, intermediate, scale_pads=(0, 0)):
    return formats.pad(layer, pairs, hidden, intermediate, scale_pads)


def is_asked(case):
    return re.fullmatch(os.environ.get("MXFP4_PACK_BACKENDS") or ".*", case.backend)


def shown(engine, version, case, tp, result, how):
    """case: (backend, layout, family)"""
    backend, layout, family = case
    record({"engine": engine, "version": version, "backend": backend, "layout": layout, "family": family, "tp": tp,
            "gpu": "", "shown": result, "how": how})


def record(row):
    """A row of a table of matrix.json."""
    print(json.dumps(row), flush=True)
    if name := os.environ.get("MXFP4_PACK_CELLS"):
        with open(name, "a") as file:
            file.write(json.dumps(row) + "\n")
