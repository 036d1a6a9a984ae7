"""SGLang's unpacked parameters of a packed layer, and its conversion of a set's canary."""

import copy
from functools import partial
from typing import NamedTuple

import torch
from mxfp4_pack import UnpackedLayer, Unconverted, learned
from mxfp4_pack.compare import as_stored
from mxfp4_pack.learn.probe import EXPERTS
from mxfp4_pack._entries import ROLES
from torch.nn import Parameter


class Packed:
    """The state of the hooks for one packed layer, kept in the layer's attribute `mxfp4_pack`."""

    def __init__(self, set_, place, experts):
        self.set, self.place = set_, place
        self.experts = list(experts)  # the number of the expert in each row
        self.entries = set_.layer(*place, f"{place[0]} layer {place[1]}")
        self.device = torch.empty(0).device  # SGLang builds models under `with device`
        self.create = None  # create(method, layer, **changes): makes the engine's unpacked parameters
        self.held = None  # packed tensors in the engine's memory: {(role, part): tensor}
        self.to_host = set()  # unpacked parameters that the engine moves to the host's memory
        self.done = False


def packed_of(layer):
    return getattr(layer, "mxfp4_pack", None)


def make_unpacked(method, layer):
    """Unpacks the layer's experts into the engine's unpacked parameters."""
    packed = packed_of(layer)
    unpacked = UnpackedLayer(packed.set, packed.entries)

    def fill_one(key, *place):
        unpacked.fill(key, packed.experts, *place)
    layer._parameters.update(unpacked_parameters(method, layer, fill_one))


def unpacked_parameters(method, layer, fill, **changes):
    """Makes parameters as SGLang does, with `changes`, and fills them as its loader does. fill(key, parameter, whether
    up is first)"""
    packed, probe = packed_of(layer), copy.copy(layer)
    probe._parameters = {}
    with packed.device:
        packed.create(copy.copy(method), probe, **changes)
    for key in packed.entries:
        parameter = probe._parameters[unpacked_name(probe, key, packed)].data
        if key[1] == "codes":
            parameter.zero_()  # some classes do not initialise pads
        is_f32 = key[1] == "scales" and parameter.dtype == torch.float32  # the engine loads scales as numbers
        stored = torch.full(parameter.shape, 0x7F, dtype=torch.uint8) if is_f32 else parameter
        fill(key, stored, getattr(method, "load_up_proj_weight_first", False))
        if is_f32:
            parameter.copy_(stored.view(torch.float8_e8m0fnu).float())
    return probe._parameters


def unpacked_name(layer, key, packed):
    parameter = packed.entries[key].parameter
    return next(name for name in (parameter, parameter + "_inv") if name in layer._parameters)


class Rest(NamedTuple):
    """The values other than packed tensors that the engine's conversion gives a layer, found with the canary."""
    vectors: dict  # parameters of one value, or of one for each expert
    buffers: dict  # the same as buffers
    biases: dict  # dtypes of biases in the engine that the checkpoint does not have: zeros
    made: dict  # {(role, part): tensor} of the canary, instead of the packed tensors
    attributes: dict  # workspace, marks


def converted_canary(original, method, layer):
    """The installed engine converts the unpacked canary, which must give the packed canary, on a copy of the layer."""
    packed = packed_of(layer)
    is_learned = packed.set.layout_file is not None
    unpacked, want = ({}, {}) if is_learned else packed.set.canary(packed.device)
    probe, method = copy.copy(layer), copy.copy(method)
    probe._parameters, probe._buffers = {}, dict(layer._buffers)
    try:
        fill_learned(probe, method, layer) if is_learned else fill(probe, method, layer, unpacked)
        before = dict(vars(probe))
        original(method, probe)
        made = {key: getattr(probe, e.parameter, None) for key, e in packed.entries.items()}
        made |= {key: storage.data for key, storage in storages(method).items()} if packed.set.is_triton else {}
    except Exception as error:
        raise packed.set.mismatch(f"its converter fails on the canary: {error!r}", Unconverted) from error
    tensors = {key: t.data for key, t in made.items() if t is not None}
    if is_learned:
        learned.check_canary(packed.set, tensors)
    else:
        check_canary(packed.set, tensors, unpacked, want)
    known = {e.parameter for e in packed.entries.values()}
    others = {name: p for name, p in probe._parameters.items() if name not in known}
    return Rest({name: p for name, p in others.items() if name not in layer._parameters},
                {name: b for name, b in probe._buffers.items() if name not in layer._buffers},
                {name: p.dtype for name, p in others.items() if name.endswith("_bias")}, made,
                {name: value for name, value in vars(probe).items() if name not in before or before[name] is not value})


def check_canary(set_, made, unpacked, want):
    if set_.backend == "triton-blackwell":  # triton_kernels 3.7 does not initialise padded columns
        for role in ROLES:
            made[role, "codes"][:, unpacked[role, "codes"].shape[2]:] = 0
    set_.check_canary({key: as_stored(t, want[key]) for key, t in made.items()}, want)


def fill_learned(probe, method, layer):
    """Writes the canary of the set's layout file to unpacked parameters of the layer's own sizes."""
    probe.num_local_experts = EXPERTS
    fill = partial(learned.fill_canary, packed_of(layer).set)
    probe._parameters = unpacked_parameters(method, probe, fill, num_experts=EXPERTS)
    if hasattr(method, "num_experts"):
        method.num_experts = EXPERTS


def fill(probe, method, layer, unpacked):
    """The unpacked canary under the names and dtypes of the layer's unpacked parameters, rows as the engine's loader
    puts them."""
    probe.num_local_experts = next(iter(unpacked.values())).shape[0]
    for key, tensor in unpacked.items():
        name = unpacked_name(layer, key, packed_of(layer))
        if key[1] == "scales" and packed_of(layer).set.backend == "flashinfer-humming":
            tensor = torch.where(tensor == 0, tensor[:, :1, :1], tensor)  # pads must not change an expert's range
        if key[0] == "w13" and getattr(method, "load_up_proj_weight_first", False):
            tensor = torch.cat(tensor.chunk(2, dim=1)[::-1], dim=1)
        dtype = layer._parameters[name].dtype
        tensor = tensor.view(torch.float8_e8m0fnu).float() if dtype == torch.float32 else tensor.view(dtype)
        probe.register_parameter(name, Parameter(tensor, requires_grad=False))
    for name, p in layer._parameters.items():
        if name.endswith("_bias") and name not in probe._parameters:
            shape = unpacked[name.partition("_")[0], "codes"].shape[:2]
            zeros = torch.zeros(shape, dtype=p.dtype, device=packed_of(layer).device)
            probe.register_parameter(name, Parameter(zeros, requires_grad=False))
    sizes = unpacked["w13", "codes"].shape[2] * 2, unpacked["w13", "codes"].shape[1] // 2
    if packed_of(layer).set.backend == "humming":  # this conversion reads attributes of the layer
        probe.hidden_size, probe.intermediate_size_per_partition = sizes
    of_canary = dict.fromkeys(("_padded_hidden", "_unpadded_hidden", "hidden_size"), sizes[0]) | dict.fromkeys(
        ("_padded_intermediate", "intermediate_size_per_partition"), sizes[1]) | {"num_experts": probe.num_local_experts}
    vars(method).update((name, value) for name, value in of_canary.items() if hasattr(method, name))


def storages(method):
    """Triton's storages, which are attributes of the method: {(role, part): storage}"""
    return {("w13", "codes"): method.w13_weight_triton_tensor.storage,
            ("w2", "codes"): method.w2_weight_triton_tensor.storage,
            ("w13", "scales"): scale_of(method.w13_precision_config).storage,
            ("w2", "scales"): scale_of(method.w2_precision_config).storage}


def scale_of(precision_config):
    """The scales in a PrecisionConfig. triton_kernels 3.7, in SGLang from 0.5.18 on, names them b_mx_scale."""
    return next(getattr(precision_config, name) for name in ("b_mx_scale", "weight_scale")
                if hasattr(precision_config, name))
