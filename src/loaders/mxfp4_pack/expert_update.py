"""Replaces packed experts in use: packs new unpacked experts in place, according to their set's plan."""

from functools import cached_property
from typing import NamedTuple

import torch

from ._entries import DTYPES, Entry, Refused, path_of
from ._errors import printable
from ._fields import PACKED_SOURCE, SOURCES
from ._files import INDEX_LIMIT, read_json
from ._forms import Map, Text, check
from ._library import Packer
from .manifest import read_source_table

NAN = 0xFF  # the E8M0 byte
BYTES = ("U8", "I8", "F8_E8M0", "F4")  # dtypes that the packer treats as bytes


class Source(NamedTuple):
    """A checkpoint's tensor from which a packed tensor is made."""
    tensor: str  # the packed tensor
    names: tuple  # names of tensors that are packed together: one, or gate's and up's
    experts: range  # in these tensors, each an equal share
    dtype: str
    shape: tuple


class Target(NamedTuple):
    """A packed tensor in an engine's memory, one row for each of the numbers in `experts`."""
    entry: Entry
    memory: torch.Tensor
    experts: list
    part: str


def sources_of(fields, rank, source_table):
    """{name: Source} of a manifest's set."""
    tensors = {t["name"]: t for t in source_table}
    found = {}
    for t in fields["tensors"]:
        if t.get("rank", 0) != rank:
            continue
        source = t.get("source", [])
        check(source, SOURCES, fields["table"], f"{t['name']}: source")
        count = 1 if t["role"] == "w2" or len(source) == 1 else 2
        for first in range(0, len(source), count):
            names = tuple(source[first:first + count])
            experts = range(t["experts"]) if len(source) == count else range(first // count, first // count + 1)
            for name in names:
                check(tensors.get(name), PACKED_SOURCE, "the source's table", name)
                found[name] = Source(t["name"], names, experts, tensors[name]["dtype"], tuple(tensors[name]["shape"]))
    return found


class Update:
    """Packs new experts into `targets`: {packed tensor's name: Target}, for a set's layers on this rank."""

    def __init__(self, set_, targets):
        self.set, self.targets = set_, targets
        self.packer = None  # created for the first tensor
        self.sources = sources_of(set_.fields, set_.rank, read_source_table(set_.directory, set_.fields["files"]))
        self.waiting = {}  # name: tensor that waits for its up or gate
        self.packed = {}  # packed tensor's name: its replaced experts

    def takes(self, name):
        return name in self.sources

    def lacks(self, name):
        """Whether a tensor belongs to a module with packed experts, but was neither packed nor copied by `convert`."""
        return name.startswith(self.modules) and name not in self.sources and name not in self.left

    @cached_property
    def modules(self):
        return tuple({t["name"].rpartition(".")[0] + "." for t in self.set.fields["tensors"]})

    @cached_property
    def left(self):
        path = path_of(self.set.directory, "model.safetensors.index.json")
        try:
            index = read_json(path, INDEX_LIMIT)
        except OSError as error:
            raise Refused(f"{printable(path)}: {error.strerror}") from error
        check(index, {"weight_map": Map(Text())}, printable(path))
        return index["weight_map"].keys()

    def check(self, name, tensor):
        source = self.sources[name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        right = tensor.element_size() == 1 if source.dtype in BYTES else dtype == DTYPES[source.dtype]
        if not right or tuple(tensor.shape) != source.shape:
            raise Refused(f"{name}: is {dtype} {list(tensor.shape)}, the checkpoint's was {source.dtype} "
                          f"{list(source.shape)}")

    def add(self, name, tensor):
        """Packs a tensor, together with up or gate if these are separate. Ignores layers on other ranks. Later work on
        the current stream sees the new bytes."""
        self.check(name, tensor)
        source = self.sources[name]
        target = self.targets.get(source.tensor)
        if target is None:
            return
        self.waiting[name] = self.canonical(name, tensor, target)
        if all(other in self.waiting for other in source.names):
            self.pack(source, target, [self.waiting.pop(other) for other in source.names])

    def canonical(self, name, tensor, target):
        """The tensor in the packer's form: contiguous, biases in the packed dtype. Copied if it must wait for another
        tensor."""
        source = self.sources[name]
        dtype = getattr(torch, target.entry.torch_dtype) if tensor.element_size() > 1 else tensor.dtype
        if target.part == "scales":
            if tensor.element_size() > 1:
                raise Refused(f"{name}: scales in {source.dtype} are packed by convert alone")
            if not self.set.allows_nan_scales and bool((tensor.view(torch.uint8) == NAN).any()):
                raise Refused(f"{name}: 0xFF is NaN")
        return tensor.to(target.memory.device, dtype, copy=len(source.names) > 1).contiguous()

    def pack(self, source, target, tensors):
        if self.packer is None:
            self.packer = Packer(self.set.directory, self.set.number, self.set.rank)
        row_bytes = target.entry.bytes // target.entry.experts
        begin = target.memory.data_ptr()
        shares = [t.numel() * t.element_size() // len(source.experts) for t in tensors]
        experts = []
        for row, expert in enumerate(target.experts):
            if expert in source.experts:
                share = expert - source.experts.start
                pieces = [t.data_ptr() + share * size for t, size in zip(tensors, shares)]
                experts.append((expert, pieces, begin + row * row_bytes))
        device = target.memory.device
        if device.type == "cuda":
            self.packer.pack(source.tensor, experts, device.index, torch.cuda.current_stream(device).cuda_stream)
        else:
            self.packer.pack(source.tensor, experts)
        self.packed.setdefault(source.tensor, set()).update(number for number, _, _ in experts)

    def refuse_alone(self, names):
        """Refuses gate without up, or the reverse, among these names."""
        for name in names:
            if missing := [other for other in self.sources[name].names if other not in names]:
                raise Refused(f"{name} came without {', '.join(missing)}: these are packed into one matrix")

    def finish(self, tensors):
        """Ends the update of these packed tensors. Returns those that did not get all of their experts."""
        waiting = {name for name in self.waiting if self.sources[name].tensor in tensors}
        for name in waiting:
            del self.waiting[name]
        got = {tensor: self.packed.pop(tensor, set()) for tensor in tensors if tensor in self.targets}
        self.refuse_alone(waiting)
        return [tensor for tensor, experts in got.items() if experts != set(self.targets[tensor].experts)]


class Served(NamedTuple):
    """A layer in use. held: {key: tensor}, the tensors that its kernel reads. experts: the experts' numbers, in the
    order of rows."""
    set: object
    entries: dict
    held: dict
    experts: list


def updates_of(layers):
    """One Update for each set; the set keeps it."""
    sets = {}
    for layer in layers:
        sets.setdefault(layer.set, []).append(layer)
    for set_, of_set in sets.items():
        if set_.update is None:
            set_.update = Update(set_, {entry.name: Target(entry, layer.held[key], layer.experts, key[1])
                                        for layer in of_set for key, entry in layer.entries.items() if layer.held})
    return [set_.update for set_ in sets]


def taking(updates, name):
    return next((update for update in updates if update.takes(name)), None)


def pack(updates, names, tensors):
    """Packs all of these tensors, or, except for NaN scales, none."""
    taken = {}
    for name, tensor in zip(names, tensors, strict=True):
        update = taking(updates, name)
        if update is None:
            raise Refused(f"{name}: no packed tensor is made of it")
        update.check(name, tensor)
        taken.setdefault(update, {})[name] = tensor
    for update, given in taken.items():
        update.refuse_alone(given)
    for update, given in taken.items():
        for name, tensor in given.items():
            update.add(name, tensor)


def others(updates, weights, begin):
    """Packs new weights of packed experts, and yields all other weights. Calls begin() before the first packed
    tensor."""
    began = False
    for name, tensor in weights:
        update = taking(updates, name)
        if update is None:
            if any(update.lacks(name) for update in updates):
                raise Refused(f"{name}: no packed tensor is made of it; experts are taken as the checkpoint had them")
            yield name, tensor
            continue
        if not began:
            begin()
            began = True
        update.add(name, tensor)
