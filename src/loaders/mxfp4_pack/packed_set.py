"""The packed tensors for one engine, backend and MoE tensor-parallel rank."""

import os
import time

import torch

from ._advice import LIBRARIES, after_misfit, installed
from ._entries import BYTES, ROLES, Misfit, Refused, counted, entry_of, kernel_of, path_of
from ._errors import printable
from ._files import read_file
from ._loading import Loading, Request
from ._safetensors import read_header
from .compare import difference
from .fallback import OFFER, SUFFIX, allowed


QUIET = 5  # seconds between two lines about reads in the log
CANARY_LIMIT = 64 << 20  # bytes; the format's limit is 1 MiB


def flat(tensor):
    """All bytes of a tensor without gaps, in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def expert_rows(held, experts):
    """The rows that an engine's load balancing moves: for each tensor of a layer, the bytes of one expert are a row.
    Engines would send scales as F8_E8M0, which NCCL and Gloo do not support, and would skip tensors that are not
    parameters."""
    return [flat(tensor).view(experts, -1) for tensor in held.values()]


class PackedSet:
    """Reads the packed tensors of a set. It has no open files, so it can be pickled."""

    def __init__(self, directory, fields, rank):
        self.directory = directory
        self.fields = fields
        self.rank = rank
        self.canary_is_equal = False
        self.fallback = None  # why the engine converts unpacked experts, or None
        self.update = None  # the Update for new experts, once there are some
        self._loading = None  # set in the process that loads the model
        self.layers = {}  # (namespace, number) -> {(role, part): Entry}
        for t in fields["tensors"]:
            if t.get("rank", 0) == rank:
                layer = self.layers.setdefault((t["namespace"], t["layer"]), {})
                layer[t["role"], t["part"]] = entry_of(t)

    number = property(lambda self: self.fields["number"])
    engine = property(lambda self: self.fields["engine"])
    backend = property(lambda self: self.fields["backend"])
    kernel = property(lambda self: kernel_of(self.fields))
    layout_file = property(lambda self: self.fields.get("layout_file"))  # None for a built-in backend
    is_triton = property(lambda self: self.kernel.startswith(("triton", "aiter_triton_mxfp4_bf16")))
    moe_tp_size = property(lambda self: self.fields["moe_tp_size"])
    padded_sizes = property(lambda self: (self.fields["model"]["padded_hidden"],
                                          self.fields["model"]["padded_intermediate"]))
    sizes = property(lambda self: (self.fields["model"]["hidden"], self.fields["model"]["intermediate"]))
    allows_nan_scales = property(lambda self: self.fields["allow_incomplete"])
    activation = property(lambda self: self.fields["model"]["activation"]["name"])
    swiglu_limit = property(lambda self: self.fields["model"]["activation"]["limit"])

    def layer(self, namespace, number, what):
        try:
            return self.layers[namespace, number]
        except KeyError:
            raise Refused(f"{what}: no packed experts of {namespace} layer {number} in {printable(self.directory)}") from None

    def expect(self, entries, experts, device, into=None):
        """Begins to read a layer of the engine for `read_layer`. into: {key: tensor}, an earlier result, which is
        overwritten."""
        memory = into and {key: flat(tensor) for key, tensor in into.items()}
        self.loading.expect(Request(entries, tuple(experts), device), memory)

    def read_layer(self, entries, experts, device):
        """{key: tensor} for the entries {key: Entry} of a layer, in the engine's view. `experts`: global numbers, in
        order."""
        tensors = self.loading.layer(Request(entries, tuple(experts), device))
        return {key: self._seen(entry, tensors[key], len(experts)) for key, entry in entries.items()}

    def again(self, manifest, place, entries):
        """The set of another directory whose layer at `place` can replace this set's `entries` in the engine's
        memory."""
        set_ = manifest.pick(self.kernel, self.moe_tp_size, self.rank, (self.backend,))
        forms = [[(e.parameter, e.torch_dtype, e.shape, e.view) for e in own.values()]
                 for own in (entries, set_.layer(*place, "a reload"))]
        same = all(self.fields[name] == set_.fields[name] for name in ("layout_version", "model"))
        if forms[0] != forms[1] or not same:
            raise Refused(f"{printable(set_.directory)} holds experts of other sizes or another layout than those that are served. "
                          "Restart the server")
        set_.canary_is_equal = self.canary_is_equal
        return set_

    @property
    def loading(self):
        if self._loading is None:
            self._loading = Loading(self.directory, self.start_bytes())
        return self._loading

    def start_bytes(self):
        """The bytes of all files that the ranks read at a start: the set's, and those that the engine reads itself.
        Missing files are ignored here, because their readers report them."""
        packed = {path_of(self.directory, t["file"]) for t in self.fields["tensors"]}
        rest = (os.path.join(self.directory, name) for name in os.listdir(self.directory) if name.endswith(".safetensors"))
        return sum(os.stat(path).st_size for path in packed.union(rest) if os.path.isfile(path))

    @property
    def finished(self):
        """Whether all expected layers are read."""
        return not self.loading.started

    def empty(self, entry, experts, device):
        """Zeros instead of a packed tensor, for load format dummy."""
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
        """The tiny layer: unpacked {(role, part): tensor} and packed {(role, part): tensor}, both in memory order."""
        unpacked, packed = {}, {}
        names = {e.parameter: key for key, e in next(iter(self.layers.values())).items()}
        tensors = self._canary_tensors(device)
        for role in ROLES:
            for part, suffix in SUFFIX.items():
                if f"in.{role}{suffix}" in tensors:
                    unpacked[role, part] = tensors[f"in.{role}{suffix}"]
        for parameter, key in names.items():
            if f"out.{parameter}" not in tensors:
                raise Refused(f"{self.fields['canary']}: no out.{parameter}; damaged?")
            packed[key] = tensors[f"out.{parameter}"]
        return unpacked, packed

    def _canary_tensors(self, device):
        path = path_of(self.directory, self.fields["canary"])
        header, _ = read_header(path)
        if unknown := [name for name, t in header.items() if t.dtype not in BYTES]:
            raise Refused(f"{self.fields['canary']}: {unknown[0]}: dtype {header[unknown[0]].dtype} is not known; damaged?")
        data = torch.frombuffer(bytearray(read_file(path, CANARY_LIMIT)), dtype=torch.uint8)
        # Each tensor is copied, because views of other dtypes need their own alignment.
        return {name: data[t.begin:t.end].clone().view(getattr(torch, t.dtype)).view(t.shape).to(device)
                for name, t in header.items()}

    def check_canary(self, made, packed):
        """Refuses the set if `made`, the installed engine's conversion of the canary, differs from the packed
        canary."""
        found = [f"{role} {part}: {why}" for (role, part), want in packed.items()
                 if (why := difference(made.get((role, part)), want, self.is_triton))]
        if found:
            raise self.mismatch(f"it makes other bytes of the canary ({'; '.join(found)})")
        self.canary_is_equal = True

    def progress(self):
        """A line for the engine's log if reads are in progress and the last line is old, else None."""
        read, now = self.loading.progress, time.monotonic()
        if self.finished or now - max(read.begin, read.said) < QUIET:
            return None
        read.said = now
        return (f"mxfp4-pack: {self.loading.bytes_so_far() / 1e9:.1f} of {read.expected_bytes / 1e9:.1f} GB are read; "
                f"{read.layers} of {counted(read.expected, 'layer')} are in place")

    def report(self):
        """A line for the engine's log about the reads since the last report."""
        read = self.loading.progress
        self._loading = None
        return (f"mxfp4-pack: {printable(self.directory)}: {self.backend} of {self.engine}, layout version "
                f"{self.fields['layout_version']}, MoE tensor-parallel rank {self.rank} of {self.moe_tp_size}; "
                f"installed {self.engine} {installed(self.engine)}; "
                f"canary {'equal' if self.canary_is_equal else 'not compared'}; {counted(read.layers, 'layer')}, "
                f"{read.bytes / 1e9:.3f} GB in {read.seconds:.2f} s, {read.bytes / 1e9 / max(read.seconds, 1e-9):.2f} GB/s; "
                f"{read.page_cache}"
                f"{', checksums right' if read.verified else ''}"
                f"{'; the checkpoint is incomplete' if self.fields.get('allow_incomplete') else ''}")

    def mismatch(self, why, kind=Misfit):
        libraries = [self.engine, "torch", *(name for name in LIBRARIES if installed(name) != "not installed")]
        offer = "" if allowed() else f"\n  {OFFER}"
        started = "".join(f"\n  its kernel wants {name}={value} in the environment"
                          for name, value in self.fields["requires"].items()
                          if name.isupper() and os.environ.get(name) != value)
        return kind(
            f"{printable(self.directory)} does not fit the installed {self.engine}: {why}.{started}\n"
            f"  installed: {', '.join(f'{name} {installed(name)}' for name in libraries)}\n"
            f"  packed as: {self.backend}, layout version {self.fields['layout_version']}\n  {after_misfit(self.directory, self.fields)}{offer}")
