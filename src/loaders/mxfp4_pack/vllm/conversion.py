"""vLLM's functions that convert a layer's experts: their arguments and results, their temporary replacement, and their
conversion of a set's canary."""

import copy
import sys
from contextlib import contextmanager
from functools import partial

import torch
from mxfp4_pack import Refused, Unconverted, misfit
from mxfp4_pack.compare import as_stored
from mxfp4_pack._entries import ROLES
from vllm.model_executor.layers.quantization import mxfp4 as engine
from vllm.model_executor.utils import replace_parameter

# The functions among these that convert a layer's parameters in place.
IN_PLACE = ("prepare_moe_fp4_layer_for_marlin",)
ASKED = "is_weights_pre_processed"  # vLLM's methods then skip their conversion; it must be called for packed layers
CONVERTERS = ("convert_gpt_oss_weight_to_mxfp4_moe_kernel_format", "convert_weight_to_mxfp4_moe_kernel_format")
# (role, part) in the order of the conversion function's result, and the keyword of each.
RESULT = (("w13", "codes"), ("w2", "codes"), ("w13", "scales"), ("w2", "scales"), ("w13", "bias"), ("w2", "bias"))
KEYWORD = {("w13", "codes"): "w13_weight", ("w13", "scales"): "w13_weight_scale", ("w13", "bias"): "w13_bias",
           ("w2", "codes"): "w2_weight", ("w2", "scales"): "w2_weight_scale", ("w2", "bias"): "w2_bias"}


@contextmanager
def exchanged(method, replacement):
    """In this context the module-global conversion functions of a method object's class call replacement(original,
    **arguments)."""
    if missing := [name for name in CONVERTERS if not hasattr(engine, name)]:
        raise Refused(f"the installed vLLM has no {', '.join(missing)}; this loader knows vLLM 0.21 to 0.33.0")
    modules = {engine, sys.modules[type(method).__bases__[1].__module__]}
    originals = [(module, name, getattr(module, name)) for module in modules for name in (*CONVERTERS, *IN_PLACE, ASKED)
                 if hasattr(module, name)]
    try:
        for module, name, original in originals:
            setattr(module, name, replaced(name, original, replacement))
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)


def replaced(name, original, replacement):
    if name == ASKED:
        return lambda: False
    return partial(in_place, replacement, as_function(original)) if name in IN_PLACE else partial(replacement, original)


def as_function(original):
    """Wraps a conversion in place, so that it has the arguments and the result of the others."""
    def convert(layer, **given):
        original(layer)
        return tuple(getattr(layer, KEYWORD[key], None) for key in RESULT)
    return convert


def in_place(replacement, original, layer):
    """Calls the replacement with the other functions' arguments, and stores its result in the layer."""
    given = {KEYWORD[key]: getattr(layer, KEYWORD[key], None) for key in RESULT}
    for key, tensor in zip(RESULT, replacement(original, layer=layer, **given)):
        if tensor is not None:
            replace_parameter(layer, KEYWORD[key], tensor)


def of_class(method):
    """The conversion within process_weights_after_loading of an engine's method, as a conversion in place."""
    def convert(layer):
        for role in ROLES:
            layer.register_parameter(f"{role}_weight_packed", layer._parameters.pop(f"{role}_weight"))
        alone = object.__new__(type(method).__bases__[1])
        vars(alone).update(vars(method), get_fused_moe_quant_config=lambda layer: None)  # without creating a kernel
        alone.process_weights_after_loading(layer)
    return convert


def storage_of(thing):
    """The storage in a triton_kernels Tensor, or in the Tensor of a PrecisionConfig; None for torch tensors."""
    if thing is None or isinstance(thing, torch.Tensor):
        return thing
    if hasattr(thing, "storage"):
        return thing.storage
    return next(v.storage for v in vars(thing).values() if hasattr(v, "storage"))


def fill(storage, tensor, key):
    """Replaces a meta tensor of the engine's converter with a packed tensor."""
    if why := misfit(storage.data, tensor):
        raise Refused(f"{key}: vLLM's storage {why}")
    storage.data = tensor


def compare_canary(packed, original, device, given):
    """Refuses a set if the engine's converter `original` gives another canary. `given`: the converter's other
    arguments. Returns the converted canary by role and part."""
    unpacked, want = packed.canary(device)
    made = converted_canary(packed, unpacked, original, given)
    tensors = {key: getattr(storage_of(thing), "data", thing) for key, thing in made.items()}
    packed.check_canary({key: as_stored(tensor, want.get(key)) for key, tensor in tensors.items()}, want)
    return made


def converted_canary(packed, unpacked, original, given):
    """{(role, part): tensor} of the canary, converted by the engine."""
    probe = canary_layer(unpacked, given["layer"])
    weights = {name: getattr(probe, name, None) for name in KEYWORD.values()}
    try:
        made = original(**{**given, **weights, "layer": probe, "_cache_permute_indices": {}})
    except Exception as error:
        raise packed.mismatch(f"its converter fails on the canary: {error!r}", Unconverted) from error
    made = dict(zip(RESULT, made))
    for key, entry in next(iter(packed.layers.values())).items():
        made.setdefault(key, getattr(probe, entry.parameter, None))
    return made


def canary_layer(unpacked, like):
    """The canary's unpacked layer, with the attributes that converters read. Its parameters have the same attributes as
    those of `like`: vLLM 0.28 to 0.32 keep them if a converter returns a parameter itself."""
    probe = torch.nn.Module()
    probe.params_dtype, probe.layer_name = like.params_dtype, "canary"
    probe.moe_config = copy.copy(like.moe_config)
    experts, _, bytes_of_hidden = unpacked["w13", "codes"].shape
    probe.moe_config.num_local_experts, probe.moe_config.hidden_dim = experts, 2 * bytes_of_hidden
    probe.moe_config.intermediate_size_per_partition = 2 * unpacked["w2", "codes"].shape[2]
    for key, tensor in unpacked.items():
        parameter = torch.nn.Parameter(tensor, requires_grad=False)
        vars(parameter).update(vars(getattr(like, KEYWORD[key], parameter)))
        probe.register_parameter(KEYWORD[key], parameter)
    return probe
