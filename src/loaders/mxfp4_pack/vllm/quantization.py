"""The engine's own MXFP4 classes with one step exchanged: where vLLM converts a layer's experts, they are read.

A config (`PackedGptOss`, `PackedDeepseekV4`) is the engine's config of the original checkpoint and gives expert layers
a `PackedMethod`. That is the engine's method, except that
- raw parameters live on the meta device: they have shapes and no memory;
- during `process_weights_after_loading` the engine's conversion function is exchanged for one that returns the packed
  tensors. Everything before (padding, choice of kernel) and after it (parameters, quant config, kernel) is the engine's.

Facts about vLLM are from v0.26.0 and v0.33.0 (names and keywords the same in 0.21 to 0.27.1).
"""

import copy
import logging
import re
from contextlib import contextmanager

import torch
from mxfp4_pack import METHOD, Manifest, Misfit, RawLayer, Refused, Unconverted, check_version, fall_back, misfit
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.quantization import mxfp4 as engine
from vllm.models.deepseek_v4.quant_config import DeepseekV4FP8Config

# (role, part) in the order of the conversion function's result, and its keyword for each.
RESULT = (("w13", "codes"), ("w2", "codes"), ("w13", "scales"), ("w2", "scales"), ("w13", "bias"), ("w2", "bias"))
KEYWORD = {("w13", "codes"): "w13_weight", ("w13", "scales"): "w13_weight_scale", ("w13", "bias"): "w13_bias",
           ("w2", "codes"): "w2_weight", ("w2", "scales"): "w2_weight_scale", ("w2", "bias"): "w2_bias"}
logger = logging.getLogger("vllm.mxfp4_pack")
canaries_passed = set()  # of this process: (directory, backend, vLLM's backend)


def packed_config(config):
    """The config object for a `quantization_config` whose quant_method is mxfp4_pack."""
    try:
        check_version(config["mxfp4_pack"]["format_version"])
        source = config["source_quantization_config"]
        method = source["quant_method"]
    except (KeyError, TypeError) as error:
        raise Refused(f"the quantization_config of a packed checkpoint lacks {error}; damaged?") from error
    kinds = {"mxfp4": PackedGptOss, "fp8": PackedDeepseekV4}
    if method not in kinds:
        raise Refused(f"no loader for packed experts of a {method} checkpoint")
    return kinds[method].from_config(source)


def refuse_settings(vllm):
    """Settings under which packed experts would be moved or dropped."""
    offload = getattr(vllm, "offload_config", None)
    found = {
        "--cpu-offload-gb": getattr(getattr(offload, "uva", None), "cpu_offload_gb", 0)
        or getattr(vllm.cache_config, "cpu_offload_gb", 0),
        "--offload-group-size": getattr(getattr(offload, "prefetch", None), "offload_group_size", 0),
        "--enable-eplb (it moves experts between ranks)": getattr(vllm.parallel_config, "enable_eplb", False),
        "--enable-lora (LoRA on packed experts is untested)": getattr(vllm, "lora_config", None),
        # Level 2 drops weights and loads them again from the checkpoint, where packed experts are not found.
        "--enable-sleep-mode (its level 2 cannot be undone)": getattr(vllm.model_config, "enable_sleep_mode", False),
    }
    if set_ := [name for name, value in found.items() if value]:
        raise Refused(f"packed MXFP4 experts cannot be served with {', '.join(set_)}. Leave it out, or serve the "
                      "original checkpoint (mxfp4-pack unpack makes it again)")


class PackedConfig:
    """Before an engine's config class in the bases of one; needs `method_class` and `model_type` there."""
    manifest = None

    @classmethod
    def get_name(cls):
        return METHOD

    def maybe_update_config(self, model_name, *args, **kwargs):
        super().maybe_update_config(model_name, *args, **kwargs)
        self.manifest = Manifest(model_name, "vllm")
        if self.manifest.model_type != self.model_type:
            raise Refused(f"{model_name} holds experts of {self.manifest.model_type}, expected {self.model_type}")

    def get_quant_method(self, layer, prefix):
        vllm = get_current_vllm_config()
        refuse_settings(vllm)
        if not isinstance(layer, RoutedExperts):
            return super().get_quant_method(layer, prefix)
        moe = layer.moe_config
        parallel = moe.moe_parallel_config
        packed = self.manifest.pick(moe.moe_backend, parallel.tp_size, parallel.tp_rank)
        moe.moe_backend = packed.kernel
        return self.method_class(moe, packed, self.entries(packed, prefix), vllm.load_config.load_format == "dummy")

    def entries(self, packed, prefix):
        """The layer's packed tensors. vLLM numbers draft (MTP) layers on from the model's own."""
        number = int(re.search(r"\blayers\.(\d+)\.", prefix + ".")[1])
        main = self.manifest.main_layers
        return packed.layer(*(("model", number) if number < main else ("mtp", number - main)), prefix)


class PackedMethod:
    """Before an engine's method class in the bases of one; needs `converter`, the function to exchange, there."""

    def __init__(self, moe, packed, entries, dummy):
        self.packed, self.entries, self.dummy = packed, entries, dummy
        super().__init__(moe)
        if packed.kernel.upper() not in self.mxfp4_backend.name:
            raise Refused(f"vLLM chose {self.mxfp4_backend.name}, the experts are packed for {packed.kernel}")

    def maybe_roundup_sizes(self, *args, **kwargs):
        sizes = tuple(super().maybe_roundup_sizes(*args, **kwargs))
        if sizes != self.packed.padded_sizes:
            fall_back(self.packed, self.packed.mismatch(f"it pads (hidden, intermediate) to {sizes}, packed is "
                                                        f"{self.packed.padded_sizes}"), logger)
        return sizes

    def create_weights(self, layer, *args, **kwargs):
        self.device = torch.empty(0).device  # the engine builds models under `with device`
        self.create_raw = lambda method, layer: super(PackedMethod, method).create_weights(layer, *args, **kwargs)
        with torch.device("meta"):
            self.create_raw(self, layer)
        if not self.dummy and self.packed.fallback is None:
            self.packed.expect(self.entries, self.experts_of(layer), self.device)

    def process_weights_after_loading(self, layer):
        experts = self.experts_of(layer)
        if self.moe.has_bias != (("w13", "bias") in self.entries):
            raise Refused(f"the layer {'has' if self.moe.has_bias else 'lacks'} biases, the packed experts do not agree")
        limit = getattr(layer, "swiglu_limit", None)
        if limit is not None and limit != self.packed.swiglu_limit:
            raise Refused(f"swiglu_limit is {limit}, the experts were packed for {self.packed.swiglu_limit}")
        with exchanged(self.converter, lambda original, **given: self.converted(original, experts, given)):
            super().process_weights_after_loading(layer)

    def experts_of(self, layer):
        """Global numbers of the rank's experts, in local order (expert_map: -1, or the local number)."""
        total = next(iter(self.entries.values())).experts
        if layer.global_num_experts != total:
            raise Refused(f"the engine asks for {layer.global_num_experts} experts (redundant ones?), packed are {total}")
        if layer.expert_map is None:
            return list(range(total))
        local = layer.expert_map.tolist()
        return sorted((e for e in range(total) if local[e] >= 0), key=lambda e: local[e])

    def converted(self, original, experts, given):
        """In the place of the engine's conversion: its arguments `given`, its 6-tuple as result."""
        if not self.dummy and self.packed.fallback is None:
            try:
                self.check_canary(original, given)
            except Misfit as found:
                fall_back(self.packed, found, logger)
        if self.packed.fallback is not None:
            return original(**given | self.unpacked(given["layer"], experts))
        if self.dummy:
            tensors = {key: self.packed.empty(entry, experts, self.device) for key, entry in self.entries.items()}
        else:
            tensors = self.packed.read_layer(self.entries, experts, self.device)
            if self.packed.finished:
                logger.info(self.packed.report())
        if not self.packed.is_triton:
            return tuple(tensors.get(key) for key in RESULT)
        # Triton's weights are objects around storage. The engine's own conversion of the meta parameters costs nothing
        # and makes them as its version wants them; it also sets kernel options and deletes the raw parameters.
        made = original(**given)
        for key, thing in zip(RESULT[:4], made):
            fill(storage_of(thing), tensors[key], key)
        return (*made[:4], *(tensors.get(key) for key in RESULT[4:]))

    def unpacked(self, layer, experts):
        """The layer gets its raw parameters as the engine makes and fills them. Returns them as converter's arguments."""
        probe = copy.copy(layer)
        probe._parameters = {}
        with self.device:
            self.create_raw(copy.copy(self), probe)
        if not self.dummy:
            raw = RawLayer(self.packed, self.entries)
            for key in self.entries:
                raw.fill(key, experts, probe._parameters[KEYWORD[key]].data)
        layer._parameters.update(probe._parameters)
        return {KEYWORD[key]: getattr(layer, KEYWORD[key]) for key in self.entries}

    def check_canary(self, original, given):
        """The engine's converter on the canary's raw layer must give the canary's packed layer."""
        which = (self.packed.directory, self.packed.backend, self.mxfp4_backend.name)
        if which in canaries_passed:
            self.packed.canary_is_equal = True
            return
        compare_canary(self.packed, original, self.device, given)
        canaries_passed.add(which)


def compare_canary(packed, original, device, given):
    """Refuses a set whose canary the engine's converter `original` makes otherwise. `given`: its other arguments."""
    raw, want = packed.canary(device)
    probe = torch.nn.Module()
    probe.params_dtype = given["layer"].params_dtype
    for key, tensor in raw.items():
        probe.register_parameter(KEYWORD[key], torch.nn.Parameter(tensor, requires_grad=False))
    weights = {name: getattr(probe, name, None) for name in KEYWORD.values()}
    try:
        made = original(**{**given, **weights, "layer": probe, "_cache_permute_indices": {}})
    except Exception as error:
        raise packed.mismatch(f"its converter fails on the canary: {error!r}", Unconverted) from error
    made = {key: getattr(storage_of(thing), "data", thing) for key, thing in zip(RESULT, made)}
    packed.check_canary(made, want)


@contextmanager
def exchanged(name, replacement):
    """The engine's module-global function `name` calls replacement(original, **arguments) meanwhile."""
    original = getattr(engine, name, None)
    if original is None:
        raise Refused(f"the installed vLLM has no {name}; this loader knows vLLM 0.21 to 0.33.0")
    setattr(engine, name, lambda **given: replacement(original, **given))
    try:
        yield
    finally:
        setattr(engine, name, original)


def storage_of(thing):
    """The storage in a triton_kernels Tensor or in the one that a PrecisionConfig holds; None for torch tensors."""
    if thing is None or isinstance(thing, torch.Tensor):
        return thing
    if hasattr(thing, "storage"):
        return thing.storage
    return next(v.storage for v in vars(thing).values() if hasattr(v, "storage"))


def fill(storage, tensor, key):
    """Put a packed tensor where the engine's converter left a meta tensor."""
    if why := misfit(storage.data, tensor):
        raise Refused(f"{key}: vLLM's storage {why}")
    storage.data = tensor


class PackedGptOssMethod(PackedMethod, engine.GptOssMxfp4MoEMethod):
    converter = "convert_gpt_oss_weight_to_mxfp4_moe_kernel_format"


class PackedDeepseekV4Method(PackedMethod, engine.Mxfp4MoEMethod):
    converter = "convert_weight_to_mxfp4_moe_kernel_format"


class PackedGptOss(PackedConfig, engine.GptOssMxfp4Config):
    method_class = PackedGptOssMethod
    model_type = "gpt_oss"


class PackedDeepseekV4(PackedConfig, DeepseekV4FP8Config):
    method_class = PackedDeepseekV4Method
    model_type = "deepseek_v4"
