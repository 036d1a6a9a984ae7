"""The other hooks, in the order of a start: config, create_weights, conversion, end of load. Then the hooks of
updates."""

import logging
import pkgutil
import re
import sys
from contextlib import ExitStack, contextmanager

import torch
from mxfp4_pack import Manifest, Misfit, Refused, fall_back, is_method, misfit
from mxfp4_pack.compare import in_form_of
from mxfp4_pack.repeat import Repeat
from torch.nn import Parameter

from . import eplb, humming, offload, rest
from .arguments import refuse_unchecked
from .conversion import Packed, converted_canary, make_unpacked, packed_of, storages

logger = logging.getLogger("sglang.mxfp4_pack")
targets = []  # dotted names of all hooked functions, set by register()
# A method's tensors of one value. The value is the first of these fields that is set in its runner's config.
VALUES = {"_swiglu_limit_tensor": ("gemm1_clamp_limit", "swiglu_limit"), "_gemm1_clamp_limit_tensor": ("swiglu_limit",),
          "_mxfp4_weight_global_scale_tensor": ()}
manifest = None  # of the packed model of this process
is_draft = False  # whether the model that is loaded drafts: Qwen3-Next's draft has layer 0 under the main model's name
convert_meta = Repeat()


def after_get_config(config, model, *args, **kwargs):
    """Gives a packed model's config the checkpoint's own quantization_config, in memory."""
    global manifest
    if not is_method(getattr(config, "quantization_config", None)):
        return None
    if unhooked := [t for t in targets if not hooked(t)]:
        raise Refused(f"the installed SGLang lacks {', '.join(unhooked)}; this plugin knows SGLang 0.5.17 "
                      "to 0.5.23")
    refuse_unchecked(str(model))
    found = Manifest(str(model), "sglang")
    if manifest is not None and manifest.directory != found.directory:
        raise Refused(f"two packed models in one process: {manifest.directory} and {found.directory}")
    manifest = found
    config.quantization_config = dict(found.source_quantization)
    return config


def hooked(target):
    try:
        return hasattr(pkgutil.resolve_name(target), "__wrapped__")
    except (ImportError, AttributeError):
        return False


# Mxfp4MoEMethod's names for FlashInfer's kernels.
FLASHINFER = {"trtllm_sm100": ("flashinfer-trtllm",), "cutlass_sm90": ("flashinfer-cutlass", "flashinfer-humming"),
              "cutlass_sm120": ("flashinfer-cutlass-mxfp8",)}


def backends_of(method):
    """The backends whose bytes the engine's method object may run on. If there are none, the name of its class."""
    name = type(method).__name__
    for which, mark in (("deepgemm-mega", "use_mega_moe"), ("flashinfer-humming", "_use_sm90_humming"),
                        ("deepgemm", "use_deep_gemm")):
        if getattr(method, mark, False):
            return (which,)
    if getattr(method, "use_marlin", name == "Mxfp4MarlinMoEMethod"):
        return ("marlin",)
    if name == "Mxfp4FlashinferCutlassMoEMethod":
        return ("flashinfer-cutlass-mxfp8" if method._use_mxfp8_act_scaling else "flashinfer-cutlass",)
    if name == "Mxfp4HummingMoEMethod":
        return ("humming",)
    if name == "Mxfp4FlashinferTrtllmMoEMethod":
        return ("flashinfer-trtllm",)
    if kernel := getattr(method, "_fi_kernel", None):
        return FLASHINFER.get(kernel, (kernel,))[:1]
    if getattr(sys.modules[type(method).__module__], "_use_aiter", False):
        return ("aiter-a16w4",)
    return ("triton-hopper", "triton-blackwell") if getattr(method, "use_triton_kernels", False) else (name,)


def pads_later(method):
    """Whether the method pads the intermediate size during its conversion and stores it in the layer."""
    return hasattr(sys.modules[type(method).__module__], "_pad_intermediate_size")


def padded_sizes(method, layer):
    """(hidden, intermediate) after the engine's padding. Some methods pad before they load, others during
    conversion."""
    hidden = getattr(method, "_padded_hidden", layer.w13_weight.shape[2] * 2)
    intermediate = getattr(method, "_padded_intermediate", layer.w13_weight.shape[1] // 2)
    if type(method).__name__ == "Mxfp4MarlinMoEMethod":
        intermediate = -(-intermediate // 64) * 64
    if pads_later(method):
        intermediate = -(-intermediate // 128) * 128
    return hidden, intermediate


def create_weights(original, method, layer, *args, **kwargs):
    """Gives a packed layer unpacked parameters with shapes but no memory."""
    if manifest is None:
        return original(method, layer, *args, **kwargs)
    set_ = manifest.pick("auto", layer.moe_tp_size, layer.moe_tp_rank, backends_of(method))
    # the MTP block is named model.decoder, or Qwen3.5's mtp.layers.N
    named_apart = re.search(r"(?<!\bmtp\.)\blayers\.(\d+)\.", layer.layer_name + ".") is None
    place = "mtp" if named_apart or is_draft else "model", layer.layer_id
    total = next(iter(set_.layer(*place, layer.layer_name).values())).experts
    layer.mxfp4_pack = Packed(set_, place, eplb.logical_experts(layer, total))
    layer.mxfp4_pack.create = lambda method, layer, **changes: original(method, layer, *args, **kwargs | changes)
    with torch.device("meta"):
        result = original(method, layer, *args, **kwargs)
    sizes = padded_sizes(method, layer)
    if sizes != set_.padded_sizes:
        fall_back(set_, set_.mismatch(f"it pads (hidden, intermediate) to {sizes}, packed is {set_.padded_sizes}"), logger)
    if set_.fallback is None and not offload.is_on():
        set_.expect(layer.mxfp4_pack.entries, layer.mxfp4_pack.experts, layer.mxfp4_pack.device)
        if place[0] == "model":  # a draft model takes few of the directory's other tensors
            rest.expect(set_.directory, layer.mxfp4_pack.device)
    return result


@contextmanager
def staged(original, module, target_device):
    """SGLang moves a module's parameters to the GPU for their conversion. SGLang 0.5.19 and 0.5.20 fail if some
    parameters have no memory, such as those of a packed layer. These parameters need no move."""
    with ExitStack() as stack:
        try:
            stack.enter_context(original(module, target_device))
        except RuntimeError:
            if packed_of(module) is None or not any(p.is_meta for p in module.parameters()):
                raise
        yield module


def process(original, method, layer):
    """Replaces the engine's conversion of a packed layer. The engine's conversion runs on the canary, which also shows
    the other values that it gives a layer. For Triton it also runs on the meta parameters, to create the objects around
    storage."""
    packed = packed_of(layer)
    if packed is None:
        return original(method, layer)
    if packed.done:  # from SGLang 0.5.21 on, an update ends with a conversion of all layers
        return finish_update(packed)
    if packed.set.fallback is None:
        try:
            read(original, method, layer, converted_canary(original, method, layer))
        except Misfit as found:
            fall_back(packed.set, found, logger)
    if packed.set.fallback is not None:
        make_unpacked(method, layer)
        original(method, layer)
    give_values(method, packed.device)
    offload.to_host(layer)
    packed.done = True


def finish_update(packed):
    """Finishes an update. A gate tensor without its up tensor is skipped with an error in the log, because SGLang's
    call has already returned."""
    try:
        if packed.set.update:
            packed.set.update.finish([entry.name for entry in packed.entries.values()])
    except Refused as why:
        logger.error("mxfp4-pack: %s", why)


def give_values(method, device):
    """Copies values to tensors that the engine created on the device of the unpacked weights."""
    for name, fields in VALUES.items():
        tensor = getattr(method, name, None)
        if tensor is not None and tensor.is_meta:
            config = getattr(method, "moe_runner_config", None)
            value = next((v for v in (getattr(config, field, None) for field in fields) if v is not None), 1)
            setattr(method, name, torch.full(tensor.shape, float(value), dtype=tensor.dtype, device=device))


def read(original, method, layer, canary):
    """Puts the packed tensors, and the values found by converted_canary(), into the layer."""
    packed = packed_of(layer)
    tensors = packed.set.read_layer(packed.entries, packed.experts, packed.device)
    packed.held = dict(tensors)
    if line := packed.set.progress():
        logger.info(line)
    if packed.set.kernel == "humming":
        with humming.giving(tensors, {key: entry.parameter for key, entry in packed.entries.items()}):
            return original(method, layer)
    if packed.set.is_triton:
        sizes = tuple((name, p.shape) for name, p in layer.named_parameters(recurse=False))
        convert_meta((packed.set.directory, packed.set.backend, sizes), lambda: original(method, layer), method, layer)
        for key, storage in storages(method).items():
            if why := misfit(storage.data, tensors[key]):
                raise Refused(f"{layer.layer_name} {key}: SGLang's storage {why}")
            storage.data = tensors.pop(key)
    for name, meta in [(name, p) for name, p in layer.named_parameters(recurse=False) if p.is_meta]:
        delattr(layer, name)
        if name in canary.biases:
            zeros = torch.zeros(meta.shape, dtype=canary.biases[name], device=packed.device)
            setattr(layer, name, Parameter(zeros, requires_grad=False))
    for key, tensor in tensors.items():
        setattr(layer, packed.entries[key].parameter, in_form_of(canary.made[key], tensor))
    for name, value in canary.vectors.items():
        value = value.data[:1].repeat(layer.num_local_experts) if value.ndim else value.data.clone()
        setattr(layer, name, Parameter(value, requires_grad=False))
    for name, value in canary.buffers.items():
        layer.register_buffer(name, value[:1].repeat(layer.num_local_experts), persistent=False)
    for name, value in canary.attributes.items():
        setattr(layer, name, value)
    if pads_later(method):
        layer.intermediate_size_per_partition = packed.set.padded_sizes[1]


def after_load_model(model):
    """Refuses a packed model if the engine has loaded any expert layer itself."""
    layers = [m for m in model.modules() if hasattr(m, "num_local_experts") and hasattr(m, "layer_id")]
    if manifest is None:
        return
    if left := [m.layer_name for m in layers if not getattr(packed_of(m), "done", False)]:
        raise Refused(f"SGLang did not load the packed experts of {', '.join(left)}: another kernel runs them than those "
                      "that they are packed for")
    for set_ in {id(set_): set_ for set_ in (packed_of(m).set for m in layers)}.values():
        if set_.fallback is None:
            logger.info(set_.report())
