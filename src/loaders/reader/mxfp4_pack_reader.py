"""Reads what `mxfp4-pack convert` writes: manifest, packed tensors, canary. Shared by the vLLM and SGLang loaders.

Every field of the manifest is read here and nowhere else; mxfp4-pack-format(5) describes them.
"""

import json
import os
from importlib import metadata
from typing import NamedTuple

import torch
from safetensors import safe_open

FORMAT_VERSION = 1
METHOD = "mxfp4_pack"  # quant_method in config.json
MANIFEST = "mxfp4-pack.json"
ROLES = ("w13", "w2")
PARTS = ("codes", "scales", "bias")
SERVED = ("marlin", "flashinfer-cutlass", "triton-hopper", "triton-blackwell")  # the backends that the loaders know
# A library's name in `fits` -> the installed distribution that tells its version.
DISTRIBUTIONS = {"flashinfer": "flashinfer-python", "triton_kernels": "triton-kernels"}


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


def _entry(t):
    v = t.get("view")
    view = v and View(v["dtype"], tuple(v["shape"]), tuple(v["strides"]))
    return Entry(t["name"], t["parameter"], t["file"], t["torch_dtype"], tuple(t["shape"]), view, t["experts"])


class PackedSet:
    """The packed tensors for one engine, backend and MoE tensor-parallel rank. Holds no open file: it pickles."""

    def __init__(self, directory, fields, source, rank):
        self.directory = directory
        self.fields = fields
        self.model_type = source["model_type"]
        self.rank = rank
        self.layers = {}  # (namespace, number) -> {(role, part): Entry}
        for t in fields["tensors"]:
            if t.get("rank", 0) == rank:
                layer = self.layers.setdefault((t["namespace"], t["layer"]), {})
                layer[t["role"], t["part"]] = _entry(t)

    engine = property(lambda self: self.fields["engine"])
    backend = property(lambda self: self.fields["backend"])
    kernel = property(lambda self: kernel_of(self.fields))
    is_triton = property(lambda self: self.backend.startswith("triton"))
    moe_tp_size = property(lambda self: self.fields["moe_tp_size"])
    padded_sizes = property(lambda self: (self.fields["model"]["padded_hidden"],
                                          self.fields["model"]["padded_intermediate"]))
    swiglu_limit = property(lambda self: self.fields["model"]["activation"]["limit"])

    def layer(self, namespace, number, what):
        try:
            return self.layers[namespace, number]
        except KeyError:
            raise Refused(f"{what}: no packed experts of {namespace} layer {number} in {self.directory}") from None

    def read(self, entry, experts, device):
        """Experts (global numbers, in order) of a packed tensor, seen as the engine sees it."""
        path = os.path.join(self.directory, entry.file)
        with safe_open(path, framework="pt", device="cpu") as file:
            stored = file.get_slice(entry.name)
            if tuple(stored.get_shape()) != entry.shape:
                raise Refused(f"{path}: {entry.name}: shape is {tuple(stored.get_shape())}, manifest: {entry.shape}")
            first, count = experts[0], len(experts)
            if count == entry.experts:
                tensor = file.get_tensor(entry.name)
            elif list(experts) == list(range(first, first + count)):
                tensor = stored[first:first + count]
            else:
                tensor = torch.cat([stored[e:e + 1] for e in experts])
        if str(tensor.dtype) != f"torch.{entry.torch_dtype}":
            raise Refused(f"{path}: {entry.name}: dtype is {tensor.dtype}, manifest: {entry.torch_dtype}")
        return self._seen(entry, tensor.to(device, copy=True), count)

    def empty(self, entry, experts, device):
        """Zeros in the place of `read`, for load format dummy."""
        shape = (len(experts), *entry.shape[1:])
        tensor = torch.zeros(shape, dtype=torch.uint8 if "float8" in entry.torch_dtype else
                             getattr(torch, entry.torch_dtype), device=device)
        return self._seen(entry, tensor.view(getattr(torch, entry.torch_dtype)), len(experts))

    def _seen(self, entry, tensor, count):
        if entry.view is None:
            return tensor
        dtype, shape, strides = entry.view
        if count != entry.experts and shape[0] != entry.experts:
            raise Refused(f"{entry.name}: the engine sees it as {shape}, experts and rows in one: it cannot be served "
                          "with expert parallelism")
        first = shape[0] if count == entry.experts else count
        return tensor.view(getattr(torch, dtype)).as_strided((first, *shape[1:]), strides)

    def canary(self, device):
        """The tiny layer: raw {(role, part): tensor} and packed {(role, part): tensor}, both in memory order."""
        raw, packed = {}, {}
        names = {e.parameter: key for key, e in next(iter(self.layers.values())).items()}
        suffix = {"codes": "", "scales": "_scale", "bias": "_bias"}
        with safe_open(os.path.join(self.directory, self.fields["canary"]), framework="pt", device="cpu") as file:
            for role in ROLES:
                for part in PARTS:
                    if f"in.{role}{suffix[part]}" in file.keys():
                        raw[role, part] = file.get_tensor(f"in.{role}{suffix[part]}").to(device)
            for parameter, key in names.items():
                packed[key] = file.get_tensor(f"out.{parameter}").to(device)
        return raw, packed

    def check_canary(self, made, packed):
        """`made`: what the installed engine makes of the raw canary."""
        found = [f"{role} {part}: {why}" for (role, part), want in packed.items()
                 if (why := difference(made.get((role, part)), want, self.is_triton))]
        if found:
            raise self.mismatch(f"it makes other bytes of the canary ({'; '.join(found)})")

    def mismatch(self, why):
        fits = self.fields["fits"]
        libraries = [self.engine, "torch", *(library for library in fits if library != self.engine)]
        packed_for = (f"{library} {fit['range']}" for library, fit in fits.items())
        return Refused(
            f"{self.directory} does not fit the installed {self.engine}: {why}.\n"
            f"  installed: {', '.join(f'{name} {installed(name)}' for name in libraries)}\n"
            f"  packed for: {', '.join(packed_for)} "
            f"(layout version {self.fields['layout_version']})\n  {self.again()}")

    def again(self, **changes):
        return convert_again(self.directory, **{"engine": self.engine, "backend": self.backend,
                                                "tp_size": self.moe_tp_size, **changes})


class Manifest:
    """mxfp4-pack.json of a directory, as one engine may use it."""

    def __init__(self, directory, engine):
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
                return PackedSet(self.directory, fields, self.source, rank)
        held = (f"{kernel_of(s)} (MoE tensor-parallel size {s['moe_tp_size']}, ranks {s['ranks']})" for s in self.sets)
        backend = next((s["backend"] for s in self.sets if asked in ("auto", kernel_of(s))), "BACKEND")
        raise Refused(f"{self.directory} holds experts packed for {', '.join(held)}; asked for is {asked}, rank {rank} of "
                      f"{tp_size}. {convert_again(self.directory, self.sets[0]['engine'], backend, tp_size, '--add')}")


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


def in_memory_order(tensor):
    """The tensor with its axes sorted by stride: contiguous where it is a transposed view of contiguous memory."""
    return tensor.permute(sorted(range(tensor.ndim), key=lambda d: (-tensor.stride(d), -tensor.shape[d])))


def misfit(like, tensor):
    """None where Triton's kernels can read `tensor` in the place of the engine's own storage `like`: strides come from
    the tensor, so there may be more of it."""
    order = [sorted(range(t.ndim), key=lambda d: -t.stride(d)) for t in (like, tensor)]
    if like.dtype != tensor.dtype or order[0] != order[1] or any(a > b for a, b in zip(like.shape, tensor.shape)):
        return (f"is {like.dtype} {tuple(like.shape)} with strides {like.stride()}, packed is {tensor.dtype} "
                f"{tuple(tensor.shape)} with strides {tensor.stride()}")
    return None


def difference(made, want, larger):
    """None where `made` holds the bytes of `want` (stored contiguously), else what differs.

    larger: `want` may have more storage (pads), since kernels take strides from the tensor.
    """
    if made is None:
        return "missing"
    if made.shape[0] == 1 and made.numel() == want.numel():  # triton_kernels: one axis for experts and blocks of rows
        made = made.reshape(want.shape)
    made = in_memory_order(made)
    if made.dtype != want.dtype:
        return f"dtype is {made.dtype}, packed {want.dtype}"
    shape = tuple(made.shape)
    fits = shape == tuple(want.shape)
    if larger and made.ndim == want.ndim:
        fits = all(a <= b for a, b in zip(shape, want.shape))
    if not fits:
        return f"shape is {shape}, packed {tuple(want.shape)}"
    want = want[tuple(slice(0, n) for n in shape)]
    same = torch.equal(made.contiguous().view(torch.uint8), want.contiguous().view(torch.uint8))
    return None if same else "bytes differ"
