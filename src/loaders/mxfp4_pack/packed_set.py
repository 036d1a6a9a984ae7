"""The packed tensors for one engine, backend and MoE tensor-parallel rank."""

import time
from dataclasses import dataclass

import torch
from safetensors import safe_open

from ._advice import after_misfit, installed
from ._entries import Refused, entry_of, path_of
from .compare import difference
from .manifest import PARTS, ROLES, kernel_of


@dataclass
class Progress:
    """What was read of a set since its last report."""
    layers: int = 0
    bytes: int = 0
    seconds: float = 0.0
    canary: bool = False


class PackedSet:
    """Holds no open file: it pickles."""

    def __init__(self, directory, fields, rank):
        self.directory = directory
        self.fields = fields
        self.rank = rank
        self.progress = Progress()
        self.layers = {}  # (namespace, number) -> {(role, part): Entry}
        for t in fields["tensors"]:
            if t.get("rank", 0) == rank:
                layer = self.layers.setdefault((t["namespace"], t["layer"]), {})
                layer[t["role"], t["part"]] = entry_of(t)

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

    def read_layer(self, entries, experts, device):
        """{key: tensor} for the entries {key: Entry} of a layer."""
        begin = time.monotonic()
        tensors = {key: self.read(entry, experts, device) for key, entry in entries.items()}
        self.progress.seconds += time.monotonic() - begin
        self.progress.bytes += sum(entry.bytes // entry.experts * len(experts) for entry in entries.values())
        self.progress.layers += 1
        return tensors

    def read(self, entry, experts, device):
        """Experts (global numbers, in order) of a packed tensor, seen as the engine sees it."""
        path = path_of(self.directory, entry.file)
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
        with safe_open(path_of(self.directory, self.fields["canary"]), framework="pt", device="cpu") as file:
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
        self.progress.canary = True

    def packed_for(self):
        return ", ".join(f"{library} {fit['range']}" for library, fit in self.fields["fits"].items())

    def report(self):
        """One line on what was read since the last report, for the engine's log."""
        read, self.progress = self.progress, Progress()
        return (f"mxfp4-pack: {self.directory}: {self.backend} of {self.engine}, layout version "
                f"{self.fields['layout_version']}, MoE tensor-parallel rank {self.rank} of {self.moe_tp_size}; packed for "
                f"{self.packed_for()}; installed {self.engine} {installed(self.engine)}; "
                f"canary {'equal' if read.canary else 'not compared'}; {read.layers} layers, {read.bytes / 1e9:.3f} GB in "
                f"{read.seconds:.2f} s, {read.bytes / 1e9 / max(read.seconds, 1e-9):.2f} GB/s")

    def mismatch(self, why):
        libraries = [self.engine, "torch", *(library for library in self.fields["fits"] if library != self.engine)]
        return Refused(
            f"{self.directory} does not fit the installed {self.engine}: {why}.\n"
            f"  installed: {', '.join(f'{name} {installed(name)}' for name in libraries)}\n"
            f"  packed for: {self.packed_for()} "
            f"(layout version {self.fields['layout_version']})\n  {after_misfit(self.directory, self.fields)}")
