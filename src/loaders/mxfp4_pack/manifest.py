"""The manifest, and which of its sets serves an engine as it was started.

Every field of the manifest is read here and nowhere else; mxfp4-pack-format(5) describes them.
"""

import json
import os
from importlib import metadata
from typing import NamedTuple

FORMAT_VERSION = 1
METHOD = "mxfp4_pack"  # quant_method in config.json
MANIFEST = "mxfp4-pack.json"
ROLES = ("w13", "w2")
PARTS = ("codes", "scales", "bias")
SERVED = ("marlin", "flashinfer-cutlass", "triton-hopper", "triton-blackwell")  # the backends that the loaders know
# A library's name in `fits` -> the installed distribution that tells its version.
DISTRIBUTIONS = {"flashinfer": "flashinfer-python", "triton_kernels": "triton-kernels"}

OLD_DISTRIBUTIONS = ("mxfp4-pack-reader", "mxfp4-pack-vllm", "mxfp4-pack-sglang")


class Refused(ValueError):
    """The packed files cannot be served as asked; the message says why and what to do."""


def check_version(version):
    if version != FORMAT_VERSION:
        raise Refused(f"format_version is {version}, this loader reads {FORMAT_VERSION}: install the loader of the "
                      "mxfp4-pack that wrote these files, or convert again with this one")


class View(NamedTuple):
    """How the engine sees a stored contiguous tensor; strides in elements."""
    torch_dtype: str
    shape: tuple
    strides: tuple


class Entry(NamedTuple):
    """One packed tensor: one part of one role of one layer, experts outermost."""
    name: str
    parameter: str  # the engine's parameter: w13_weight_scale
    file: str
    torch_dtype: str
    shape: tuple
    view: View | None
    experts: int


def entry_of(t):
    v = t.get("view")
    view = v and View(v["dtype"], tuple(v["shape"]), tuple(v["strides"]))
    return Entry(t["name"], t["parameter"], t["file"], t["torch_dtype"], tuple(t["shape"]), view, t["experts"])


class Manifest:
    """mxfp4-pack.json of a directory, as one engine may use it."""

    def __init__(self, directory, engine):
        refuse_old_distributions()
        if not os.path.isdir(directory):
            raise Refused(f"{directory}: packed checkpoints are read from a local directory; download it first")
        self.directory = os.path.abspath(directory)
        path = os.path.join(directory, MANIFEST)
        try:
            with open(path, encoding="utf-8") as file:
                fields = json.load(file)
        except FileNotFoundError:
            raise Refused(f"{path} is missing: the directory is incomplete, convert it again") from None
        check_version(fields.get("format_version"))
        self.source = fields["source"]
        self.config = read_config(directory)
        sets = [s for s in fields["sets"] if s["engine"] == engine]
        if not sets:
            raise Refused(f"{directory} was packed for {', '.join(sorted({s['engine'] for s in fields['sets']}))}, "
                          f"not for {engine}. {convert_again(directory, engine, fields['sets'][0]['backend'], how='--add')}")
        self.sets = [s for s in sets if s["backend"] in SERVED]
        if not self.sets:
            raise Refused(f"no loader for experts packed for backend {', '.join(s['backend'] for s in sets)}")

    model_type = property(lambda self: self.source["model_type"])
    main_layers = property(lambda self: self.config["num_hidden_layers"])
    source_quantization = property(lambda self: self.config["quantization_config"]["source_quantization_config"])

    def kernel(self, asked, tp_size):
        """The engine's name for the backend of the set that serves `asked` (auto: any), best one of this MoE TP size."""
        sets = sorted(self.sets, key=lambda s: s["moe_tp_size"] != tp_size)
        found = [kernel_of(s) for s in sets if asked in ("auto", kernel_of(s))]
        return found[0] if found else self.pick(asked, tp_size, 0).kernel

    def pick(self, asked, tp_size, rank):
        """The first set for the engine's backend `asked` (auto: any) and this MoE tensor-parallel size."""
        for fields in self.sets:
            if asked in ("auto", kernel_of(fields)) and fields["moe_tp_size"] == tp_size and rank in fields["ranks"]:
                for name in fields["requires"]:
                    if name.startswith("unset:") and os.environ.get(name[6:]):
                        raise Refused(f"the environment variable {name[6:]} changes the bytes that {fields['engine']}'s "
                                      "kernel wants; unset it")
                from .packed_set import PackedSet
                return PackedSet(self.directory, fields, self.source, rank)
        held = (f"{kernel_of(s)} (MoE tensor-parallel size {s['moe_tp_size']}, ranks {s['ranks']})" for s in self.sets)
        backend = next((s["backend"] for s in self.sets if asked in ("auto", kernel_of(s))), "BACKEND")
        raise Refused(f"{self.directory} holds experts packed for {', '.join(held)}; asked for is {asked}, rank {rank} of "
                      f"{tp_size}. {convert_again(self.directory, self.sets[0]['engine'], backend, tp_size, '--add')}")


def refuse_old_distributions():
    """What this distribution took the place of would hook the engine a second time."""
    if found := [name for name in OLD_DISTRIBUTIONS if installed(name) != "not installed"]:
        raise Refused(f"{', '.join(found)}: installed beside mxfp4-pack, which replaces it. "
                      f"Run: python3 -m pip uninstall -y {' '.join(found)}")


def kernel_of(fields):
    """The engine's own name for a set's backend: what --moe-backend or --moe-runner-backend must be."""
    needs = fields["requires"]
    return needs.get("moe_backend") or needs["moe_runner_backend"]


def read_config(directory):
    """The language model's part of config.json: the object that has the quantization_config."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return config if "quantization_config" in config else config.get("text_config", config)


def is_packed(directory):
    """Whether a local directory holds a packed checkpoint."""
    return (os.path.isfile(os.path.join(directory, "config.json"))
            and read_config(directory).get("quantization_config", {}).get("quant_method") == METHOD)


def convert_again(directory, engine, backend, tp_size=1, how="--force"):
    """The command that makes what was asked for. how: --force replaces all sets, --add adds one to them."""
    tp = f" --tp-size {tp_size}" if tp_size > 1 else ""
    return f"Run: mxfp4-pack convert CHECKPOINT {directory} --engine {engine} --backend {backend}{tp} {how}"


def installed(library):
    try:
        return metadata.version(DISTRIBUTIONS.get(library, library))
    except metadata.PackageNotFoundError:
        return "not installed"
