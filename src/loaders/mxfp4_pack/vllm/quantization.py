"""The engine's own MXFP4 classes with one step exchanged: packed experts are read instead of converted.

A config is the engine's own config of the original checkpoint and gives expert layers a `PackedMethod`. A
`PackedMethod` is the engine's method for the layer with two differences:
- unpacked parameters are on the meta device: they have shapes and no memory;
- `process_weights_after_loading` calls a function that returns the packed tensors, not the engine's conversion
  function. All steps before (padding, choice of kernel) and after (parameters, quant config, kernel) are the engine's.

Facts about vLLM are from v0.26.0 and v0.33.0 (names and keywords the same in 0.21 to 0.27.1).
"""

import copy
import logging
import re
from functools import lru_cache

import torch
from mxfp4_pack import METHOD, Manifest, Misfit, UnpackedLayer, Refused, check_version, fall_back
from mxfp4_pack._errors import printable, refuse_options
from mxfp4_pack.compare import in_form_of
from mxfp4_pack.repeat import Repeat
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.quantization import get_quantization_config
from vllm.model_executor.layers.quantization import mxfp4 as engine

from . import eplb, humming, learned, live, load_formats, offload, own_kernel, rest, weight_cache
from .conversion import (KEYWORD, RESULT, as_function, compare_canary, exchanged, fill, in_place, of_class, storage_of)

# Models, and the quant_method of their checkpoints. Methods in ANY_MODEL, with vLLM's names, are for all other models,
# too. vLLM itself reads Kimi-K3's compressed-tensors as plain MXFP4.
MODELS = {"gpt_oss": "mxfp4", "deepseek_v4": "fp8", "deepseek_v41": "fp8", "mimo_v2_flash": "fp8", "mimo_v2": "fp8",
          "bailing_hybrid": "fp8", "kimi_k3": "compressed-tensors"}
ANY_MODEL = {"compressed-tensors": "compressed-tensors", "quark": "quark", "auto-round": "inc",
             "gpt_oss_mxfp4": "gpt_oss_mxfp4"}
# Backends, and the members of vLLM's Mxfp4MoeBackend whose kernels read them. If there are several, --moe-backend may
# choose.
KERNELS = {
    "marlin": ("MARLIN", "BATCHED_MARLIN"), "marlin-fp8": ("MARLIN", "BATCHED_MARLIN"),
    "triton-hopper": ("TRITON", "TRITON_UNFUSED"), "triton-blackwell": ("TRITON", "TRITON_UNFUSED"),
    "triton-rocm": ("TRITON", "TRITON_UNFUSED"), "aiter-triton": ("AITER_TRITON_MXFP4_BF16",),
    "flashinfer-cutlass": ("FLASHINFER_CUTLASS_MXFP4_BF16",),
    "flashinfer-cutlass-mxfp8": ("FLASHINFER_CUTLASS_MXFP4_MXFP8",),
    "flashinfer-trtllm": ("FLASHINFER_TRTLLM_MXFP4_BF16", "FLASHINFER_TRTLLM_MXFP4_MXFP8"),
    "deepgemm": ("DEEPGEMM_MXFP4",), "aiter-a16w4": ("AITER_MXFP4_BF16",), "aiter-w4a4": ("AITER_MXFP4_MXFP4",),
    "humming": ("HUMMING",), "humming-w4a8": ("HUMMING",), "vllm-cpu": ("CPU",),
    "cutlass-mxfp4": ("CUTLASS_MXFP4_MXFP4",)}
logger = logging.getLogger("vllm.mxfp4_pack")
canaries_passed = {}  # of this process: (directory, backend, vLLM's backend) -> the engine's converted canary
convert_meta = Repeat()


def packed_config(config, model_type=None):
    """The config object for a `quantization_config` whose quant_method is mxfp4_pack. model_type: the model's type, or
    None if unknown."""
    try:
        check_version(config["mxfp4_pack"]["format_version"])
        source = config["source_quantization_config"]
        method = source["quant_method"]
    except (KeyError, TypeError) as error:
        raise Refused(f"the quantization_config of a packed checkpoint lacks {error}; damaged?") from error
    if method not in (*MODELS.values(), *ANY_MODEL) or MODELS.get(model_type, method) != method:
        raise Refused(f"no loader for packed experts of a {printable(str(method))} checkpoint")
    return packed_config_class(engine_config(source, model_type)).from_config(source)


def engine_config(source, model_type):
    """The engine's config class for a checkpoint's own quantization_config."""
    if source["quant_method"] in ANY_MODEL and model_type not in MODELS:
        return get_quantization_config(ANY_MODEL[source["quant_method"]])
    if source["quant_method"] == "fp8":  # MiMo and Ling, or DeepSeek-V4
        plain = "mxfp4" in (source.get("store_dtype"), source.get("routed_experts_quant_method"))
        return get_quantization_config("fp8" if plain else "deepseek_v4_fp8")
    return engine.GptOssMxfp4Config if source["quant_method"] == "mxfp4" else engine.Mxfp4Config


@lru_cache(maxsize=None)
def packed_config_class(base):
    return type("Packed" + base.__name__, (PackedConfig, base), {"base": base})


def without_state(base):
    return object.__new__(packed_config_class(base))


@lru_cache(maxsize=None)
def packed_class(cls):
    return type("Packed" + cls.__name__, (PackedMethod, cls), {})


def packed_method(method, packed, entries):
    """Makes a method object from the engine's for a layer: it reads the layer instead of converting it."""
    name = getattr(getattr(method, "mxfp4_backend", None), "name", type(method).__name__)
    if getattr(method, "use_cutlass_mxfp4", False):  # compressed-tensors' class, whose mxfp4_backend is then Marlin
        name = "CUTLASS_MXFP4_MXFP4"
    if packed.layout_file is None and name not in KERNELS[packed.backend]:
        raise Refused(f"vLLM chose {name}, the experts are packed for {packed.kernel}")
    cls = packed_class(type(method))
    reading = object.__new__(cls)
    vars(reading).update(vars(method), packed=packed, entries=entries)
    return reading


def refuse_settings(vllm, method):
    """Refuses settings under which vLLM would move, drop or never load the packed experts of a layer's method."""
    given = getattr(vllm, "offload_config", None)
    to_host = getattr(getattr(given, "uva", None), "cpu_offload_gb", 0) or getattr(vllm.cache_config, "cpu_offload_gb", 0)
    found = {
        "--cpu-offload-gb of a vLLM without UVA, or without it by VLLM_WEIGHT_OFFLOADING_DISABLE_UVA":
        to_host and not offload.install(),
        "--offload-group-size (vLLM copies unpacked experts to the host before they are read; packed ones have none)":
        getattr(getattr(given, "prefetch", None), "offload_group_size", 0),
        **load_formats.refused(vllm.load_config.load_format, method),
    }
    refuse_options(found)


def refuse_class(cls):
    """Refuses a class of experts that takes a method of its own, as a model can on ROCm: nothing would be read."""
    function = "_get_quant_method"  # older releases of vLLM have none
    if getattr(cls, function, None) is not getattr(RoutedExperts, function, None):
        raise Refused(f"vLLM's {cls.__name__} takes a method of its own instead of this loader's. Serve the original "
                      "checkpoint (mxfp4-pack unpack makes it again)")


class PackedConfig:
    """A mixin before the engine's config class `base`."""
    manifest = base = None

    def __reduce__(self):  # workers get a copy; the state comes later, because AutoRound's config has a part that holds it
        return without_state, (self.base,), vars(self)

    @classmethod
    def get_name(cls):
        return METHOD

    def maybe_update_config(self, model_name, *args, **kwargs):
        super().maybe_update_config(model_name, *args, **kwargs)
        self.manifest = Manifest(model_name, "vllm")
        method = self.manifest.source_quantization.get("quant_method")
        if MODELS.get(self.manifest.model_type, method) != method or method not in (*MODELS.values(), *ANY_MODEL):
            raise Refused(f"{printable(model_name)} holds experts of {self.manifest.model_type}, but the config is a "
                          f"{printable(str(method))} one")

    def get_quant_method(self, layer, prefix):
        if not isinstance(layer, RoutedExperts):
            return super().get_quant_method(layer, prefix)
        vllm = get_current_vllm_config()
        moe = layer.moe_config
        parallel = moe.moe_parallel_config
        packed = self.manifest.pick(moe.moe_backend, parallel.tp_size, parallel.tp_rank)
        place = self.place(prefix)
        if place not in packed.layers and not hasattr(own := super().get_quant_method(layer, prefix), "mxfp4_backend"):
            return own  # experts of another precision, which are copied unchanged
        if place not in packed.layers and ("mtp", place[1]) in packed.layers:
            place = "mtp", place[1]  # MiniMax-M3's draft numbers its layers from 0 under the main model's names
        refuse_class(type(layer))
        if moe.moe_backend == "auto":
            moe.moe_backend = packed.kernel
        method = packed_method(super().get_quant_method(layer, prefix), packed, packed.layer(*place, prefix))
        refuse_settings(vllm, method)
        vars(method).update(place=place, dummy=vllm.load_config.load_format == "dummy")
        if getattr(parallel, "enable_eplb", False):
            eplb.check(method)
        if own_kernel.wanted():
            method.own = own_kernel.prepare(method, layer, vllm)
        live.install()
        return method

    def place(self, prefix):
        """The layer's place in the manifest. vLLM numbers draft (MTP) layers after the model's own, but Qwen's from 0."""
        number = int(re.search(r"\blayers\.(\d+)\.", prefix + ".")[1])
        if re.search(r"(^|\.)mtp\.layers\.", prefix):
            return "mtp", number
        main = self.manifest.main_layers
        return ("model", number) if number < main else ("mtp", number - main)


class PackedMethod:
    """A mixin before the engine's method class; see `packed_method`."""
    packed = entries = place = device = None
    dummy = read = False
    held = None  # what was read, in the engine: {(role, part): tensor}; empty if it keeps copies
    waits = None  # the reason for a reload: see live.py
    own = None  # this package's kernels, if they compute the layer: a Moe
    mapped = None  # what vllm preload holds of the layer, while vLLM makes its kernel: {(role, part): tensor}
    supports_pre_processed_weights = property(weight_cache.is_supported)

    def maybe_roundup_sizes(self, *args, **kwargs):
        sizes = tuple(super().maybe_roundup_sizes(*args, **kwargs))
        if sizes != self.packed.padded_sizes:
            fall_back(self.packed, self.packed.mismatch(f"it pads (hidden, intermediate) to {sizes}, packed is "
                                                        f"{self.packed.padded_sizes}"), logger)
        return sizes

    def create_weights(self, layer, *args, **kwargs):
        self.device = torch.empty(0).device  # the engine builds models under `with device`
        self.create_unpacked = lambda method, layer: super(PackedMethod, method).create_weights(layer, *args, **kwargs)
        with torch.device("meta"):
            self.create_unpacked(self, layer)
        if not self.dummy and self.packed.fallback is None and self.device.type != "meta":  # meta: vllm preload has them
            self.packed.expect(self.entries, self.experts_of(layer), self.device)
            if self.place[0] == "model":  # a draft model takes few of the directory's other tensors
                rest.expect(self.packed.directory, self.device, get_current_vllm_config())

    def process_weights_after_loading(self, layer):
        if self.held is not None:
            return live.finish(layer, self, logger)
        experts = self.experts_of(layer)
        if self.moe.has_bias != (("w13", "bias") in self.entries):
            raise Refused(f"the layer {'has' if self.moe.has_bias else 'lacks'} biases, the packed experts do not agree")
        limit = getattr(layer, "swiglu_limit", None)
        known = self.packed.swiglu_limit  # 0: the config has none for all layers; Ling's layers have their own
        if limit is not None and known and limit != known:
            raise Refused(f"swiglu_limit is {limit}, the experts were packed for {known}")
        to_host = offload.is_moved(layer)
        if weight_cache.is_mapped():
            self.mapped = weight_cache.take(layer, self)
            self.device = next(iter(self.mapped.values())).device
        with exchanged(self, lambda original, **given: self.converted(original, experts, given)):
            super().process_weights_after_loading(layer)
        if not self.read:
            raise Refused(f"vLLM's {self.mxfp4_backend.name} was not converted by a function that this loader knows")
        if to_host or not live.is_kept(layer, self):
            self.held = {}
        self.mapped = None
        if self.held and getattr(self.moe.moe_parallel_config, "enable_eplb", False):
            eplb.move_bytes(layer, self.held)
        if self.own:
            own_kernel.install(self, self.own)

    def get_fused_moe_quant_config(self, layer):
        """Called when a layer is converted. If the engine's class has converted the layer itself, its parameters are
        still on the meta device."""
        if not self.read and getattr(self, "use_cutlass_mxfp4", False):
            in_place(lambda original, **given: self.converted(original, self.experts_of(layer), given),
                     as_function(of_class(self)), layer)
        return super().get_fused_moe_quant_config(layer)

    def experts_of(self, layer):
        """Global numbers of the rank's experts, in local order (expert_map: -1, or the local number)."""
        logical = eplb.logical_experts(layer, next(iter(self.entries.values())).experts)
        if layer.expert_map is None:
            return logical
        local = layer.expert_map.tolist()
        return [logical[e] for e in sorted((e for e in range(len(logical)) if local[e] >= 0), key=lambda e: local[e])]

    def converted(self, original, experts, given):
        """Replaces the engine's conversion, with its arguments `given` and its 6-tuple as result."""
        self.read = True
        canary = dict.fromkeys(RESULT)
        if not self.dummy and self.packed.fallback is None:
            try:
                canary = self.canary(original, given)
            except Misfit as found:
                fall_back(self.packed, found, logger)
        self.held = {}
        if self.packed.fallback is not None:
            return original(**given | self.unpacked(given["layer"], experts))
        if self.mapped is not None:
            tensors = self.mapped
        elif self.dummy:
            tensors = {key: self.packed.empty(entry, experts, self.device) for key, entry in self.entries.items()}
        else:
            tensors = self.held = self.packed.read_layer(self.entries, experts, self.device)
            if self.packed.finished:
                logger.info(self.packed.report())
            elif line := self.packed.progress():
                logger.info(line)
        if self.mxfp4_backend.name == "HUMMING":
            with humming.giving(tensors, self.device):
                return original(**given)
        if not self.packed.is_triton:
            give_memory(given["layer"], self.device)
            return tuple(in_form_of(canary[key], tensors.get(key)) for key in RESULT)
        # Triton's weights are objects around storage. The engine's own conversion of meta parameters creates these
        # objects for its version of Triton. It also sets kernel options and deletes the unpacked parameters.
        sizes = tuple(getattr(given.get(name), "shape", None) for name in KEYWORD.values())
        made = convert_meta((*self.which(), sizes), lambda: original(**given), given["layer"])
        for key, thing in zip(RESULT[:4], made):
            fill(storage_of(thing), tensors[key], key)
        give_memory(given["layer"], self.device)
        return (*made[:4], *(tensors.get(key) for key in RESULT[4:]))

    def unpacked(self, layer, experts):
        """Gives the layer its unpacked parameters as the engine makes and fills them. Returns them as the converter's
        arguments."""
        probe = copy.copy(layer)
        probe._parameters = {}
        with self.device:
            self.create_unpacked(copy.copy(self), probe)
        parameters = {key: probe._parameters.get(KEYWORD[key], probe._parameters.get(KEYWORD[key] + "_packed"))
                      for key in self.entries}
        if not self.dummy:
            unpacked = UnpackedLayer(self.packed, self.entries)
            for key, parameter in parameters.items():
                unpacked.fill(key, experts, parameter.data)
        layer._parameters.update({KEYWORD[key]: parameter for key, parameter in parameters.items()})
        return {KEYWORD[key]: parameter for key, parameter in parameters.items()}

    def canary(self, original, given):
        """The canary's layer, converted by the engine. Its bytes must equal those of the packed canary."""
        if self.which() not in canaries_passed:
            compare = compare_canary if self.packed.layout_file is None else learned.compare_canary
            canaries_passed[self.which()] = compare(self.packed, original, self.canary_device(), given)
        self.packed.canary_is_equal = True
        return canaries_passed[self.which()]

    def canary_device(self):
        """The device for the canary's conversion. For Triton, the CPU: the conversion consists of torch's operations,
        and a GPU would load a kernel for each."""
        tiny = self.packed.is_triton and self.packed.layout_file is None
        return torch.device("cpu") if tiny else self.device

    def which(self):
        return self.packed.directory, self.packed.backend, self.mxfp4_backend.name


def give_memory(layer, device):
    """Replaces meta parameters by empty tensors, because vLLM would otherwise drop the parameters' attributes."""
    for name, parameter in list(layer.named_parameters(recurse=False)):
        if parameter.is_meta:
            empty = torch.nn.Parameter(torch.empty(0, dtype=parameter.dtype, device=device), requires_grad=False)
            vars(empty).update(vars(parameter))
            setattr(layer, name, empty)
