"""The hooks, in the order in which a start meets them: arguments, config, create_weights, conversion, end of load."""

import importlib
import pkgutil
import re
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from mxfp4_pack_reader import METHOD, Manifest, Refused, is_packed
from torch.nn import Parameter

RUNNER = {"marlin": "marlin", "flashinfer-cutlass": "flashinfer_mxfp4", "triton": "triton_kernel"}
LOAD_FORMATS = ("auto", "safetensors")  # those that DefaultModelLoader serves and that end in `after_load_model`
targets = []  # dotted names of all hooked functions, set by register()
manifest = None  # of the packed model of this process


class Packed:
    """What the hooks know of one packed layer; kept on it as `mxfp4_pack`."""

    def __init__(self, set_, entries, experts):
        self.set, self.entries, self.experts = set_, entries, experts
        self.device = torch.empty(0).device  # SGLang builds models under `with device`
        self.deinterleaved = self.done = False

    def parameters(self):
        """{the engine's parameter name: its tensor}"""
        return {entry.parameter: self.set.read(entry, self.experts, self.device) for entry in self.entries.values()}


def packed_of(layer):
    return getattr(layer, "mxfp4_pack", None)


def before_server_args(args):
    """Before SGLang completes its arguments: the runner is the packed one, and nothing else that cannot be served."""
    if not is_packed(args.model_path):
        return
    packed = Manifest(args.model_path, "sglang")
    runner = RUNNER.get(packed.backends[0])
    if runner is None:
        raise Refused(f"no loader for experts packed for backend {packed.backends[0]}")
    for name in ("moe_runner_backend", "speculative_moe_runner_backend"):
        asked = getattr(args, name, None)
        if asked not in (None, "auto", runner):
            raise Refused(f"--{name.replace('_', '-')} {asked} is asked for, but the experts are packed for {runner}")
    args.moe_runner_backend = runner
    refused = {
        "--enable-eplb (it moves experts between ranks)": args.enable_eplb,
        "--ep-num-redundant-experts": args.ep_num_redundant_experts,
        "--init-expert-location": args.init_expert_location != "trivial",
        "--cpu-offload-gb": args.cpu_offload_gb,
        "--offload-group-size": getattr(args, "offload_group_size", 0) > 0,
        "--enable-lora (LoRA on packed experts is untested)": args.enable_lora or args.lora_paths,
        # Releasing the weights drops them; they would come back as raw tensors, which are not there.
        "--enable-memory-saver (released weights cannot be loaded again)": args.enable_memory_saver,
        f"--load-format {args.load_format}": args.load_format not in LOAD_FORMATS,
    }
    if set_ := [name for name, value in refused.items() if value]:
        raise Refused(f"packed MXFP4 experts cannot be served with {', '.join(set_)}. Leave it out, or serve the "
                      "original checkpoint (mxfp4-pack unpack makes it again)")


def after_get_config(config, model, *args, **kwargs):
    """A packed model's config gets the checkpoint's own quantization_config, in memory."""
    global manifest
    if (getattr(config, "quantization_config", None) or {}).get("quant_method") != METHOD:
        return None
    unhooked = [t for t in targets if not hooked(t)]
    if unhooked:
        raise Refused(f"the installed SGLang lacks {', '.join(unhooked)}; this loader knows SGLang 0.5.17")
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


def create_weights(original, method, layer, *args, **kwargs):
    """Raw parameters of a packed layer have shapes and no memory."""
    if manifest is None:
        return original(method, layer, *args, **kwargs)
    backend = manifest.backends[0]
    if not uses(method, backend):
        raise Refused(f"SGLang chose {type(method).__name__} with another kernel than {RUNNER[backend]}, for which the "
                      "experts are packed")
    set_ = manifest.pick(backend, layer.moe_tp_size, layer.moe_tp_rank)
    draft = re.search(r"\blayers\.(\d+)\.", layer.layer_name + ".") is None  # the MTP block is model.decoder
    entries = set_.layer("mtp" if draft else "model", layer.layer_id, layer.layer_name)
    total = next(iter(entries.values())).experts
    if layer.num_experts != total:
        raise Refused(f"{layer.layer_name} has {layer.num_experts} experts (fused shared or redundant ones?), packed "
                      f"are {total}")
    first = layer.moe_ep_rank * layer.num_local_experts
    layer.mxfp4_pack = Packed(set_, entries, range(first, first + layer.num_local_experts))
    with torch.device("meta"):
        result = original(method, layer, *args, **kwargs)
    sizes = getattr(method, "_padded_hidden", layer.w13_weight.shape[2] * 2), getattr(
        method, "_padded_intermediate", layer.w13_weight.shape[1] // 2)
    if sizes != set_.padded_sizes:
        raise set_.mismatch(f"it pads (hidden, intermediate) to {sizes}, packed is {set_.padded_sizes}")
    return result


def uses(method, backend):
    """Whether a method object of the engine runs the kernel that the experts are packed for."""
    if backend == "marlin":
        return getattr(method, "use_marlin", type(method).__name__ == "Mxfp4MarlinMoEMethod")
    if backend == "flashinfer-cutlass":
        return getattr(method, "_fi_kernel", None) == "cutlass_sm90" or (
            getattr(method, "_use_mxfp8_act_scaling", None) is False)
    return getattr(method, "use_triton_kernels", False)


def probe_of(layer, raw):
    """A small layer that holds the canary under the names and dtypes of the layer's raw parameters."""
    probe = torch.nn.Module()
    names = {key: entry.parameter for key, entry in packed_of(layer).entries.items()}
    for key, tensor in raw.items():
        name = next(n for n in (names[key], names[key] + "_inv") if hasattr(layer, n))
        like = getattr(layer, name)
        probe.register_parameter(name, Parameter(tensor.view(like.dtype), requires_grad=False))
    probe.num_local_experts = next(iter(raw.values())).shape[0]
    probe.moe_runner_config = getattr(layer, "moe_runner_config", None)
    if hasattr(layer, "orig_dtype"):
        probe.orig_dtype = layer.orig_dtype
    return probe


def canary(layer, convert):
    """convert(probe) by the installed engine must give the packed canary. Returns the converted probe."""
    packed = packed_of(layer)
    raw, want = packed.set.canary(packed.device)
    probe = probe_of(layer, raw)
    try:
        made = convert(probe) or {key: getattr(probe, entry.parameter).data for key, entry in packed.entries.items()}
    except Exception as error:
        raise packed.set.mismatch(f"its converter fails on the canary: {error!r}") from error
    packed.set.check_canary(made, want, larger=packed.set.backend == "triton")
    return probe


def deinterleave(original, layer):
    if packed_of(layer) is None:
        return original(layer)
    packed_of(layer).deinterleaved = True  # the packed rows are in the order that this makes


def prepare_marlin(original, layer):
    packed = packed_of(layer)
    if packed is None:
        return original(layer)

    def convert(probe):
        if packed.deinterleaved:
            engine = importlib.import_module("sglang.srt.layers.quantization.marlin_utils_fp4")
            engine.deinterleave_moe_mxfp4_w13_for_marlin(probe)
        original(probe)

    probe = canary(layer, convert)
    place(layer)
    layer.workspace = torch.zeros_like(probe.workspace)
    for stale in ("w13_weight_scale_inv", "w2_weight_scale_inv"):
        if hasattr(layer, stale):
            delattr(layer, stale)


def process_cutlass(original, method, layer):
    packed = packed_of(layer)
    if packed is None:
        return original(method, layer)

    def convert(probe):
        sizes = SimpleNamespace(_padded_hidden=probe.w13_weight.shape[2] * 2,
                                _padded_intermediate=probe.w13_weight.shape[1] // 2)
        original(sizes, probe)

    probe = canary(layer, convert)
    place(layer)
    for name in ("swiglu_alpha", "swiglu_beta", "swiglu_limit"):  # the engine's values, one for each expert
        value = getattr(probe, name)[:1].repeat(layer.num_local_experts)
        setattr(layer, name, Parameter(value, requires_grad=False))


def process_deepseek_cutlass(original, method, layer):
    """The engine's own method runs, with FlashInfer's two functions exchanged for ones that return what is packed."""
    packed = packed_of(layer)
    if packed is None:
        return original(method, layer)
    stand_in = SimpleNamespace(prefix="canary", _use_mxfp8_act_scaling=False,
                               _fp8=SimpleNamespace(process_weights_after_loading=lambda probe: None))

    def convert(probe):
        if getattr(method, "load_up_proj_weight_first", False):  # its loader exchanges the halves of w13
            for name in ("w13_weight", "w13_weight_scale_inv"):
                parameter = getattr(probe, name)
                gate, up = parameter.data.view(torch.uint8).chunk(2, dim=1)
                parameter.data = torch.cat([up, gate], dim=1).view(parameter.dtype)
        original(stand_in, probe)

    canary(layer, convert)
    tensors = packed.parameters()
    with in_order("flashinfer.fused_moe", "interleave_moe_weights_for_sm90_mixed_gemm",
                  [tensors["w13_weight"], tensors["w2_weight"]]), \
            in_order("flashinfer.fused_moe", "interleave_moe_scales_for_sm90_mixed_gemm",
                     [tensors["w13_weight_scale_inv"], tensors["w2_weight_scale_inv"]]):
        original(method, layer)
    limit = method._swiglu_limit_tensor
    if limit is not None and limit.is_meta:  # it was made on the device of the raw weights
        method._swiglu_limit_tensor = torch.full(limit.shape, float(method.moe_runner_config.swiglu_limit),
                                                 dtype=limit.dtype, device=packed.device)
    packed.done = True


@contextmanager
def in_order(module, name, results):
    """module.name returns these results, one a call, meanwhile; a call too many or too few is an error."""
    module, left = importlib.import_module(module), list(results)
    original = getattr(module, name)
    setattr(module, name, lambda *args, **kwargs: left.pop(0))
    try:
        yield
    finally:
        setattr(module, name, original)
    if left:
        raise Refused(f"SGLang called {name} {len(results) - len(left)} times, expected {len(results)}")


def process_gpt_oss(original, method, layer):
    """Triton only: biases become parameters before, and left-over raw scales go after the engine's own method."""
    packed = packed_of(layer)
    if packed is None or packed.set.backend != "triton":
        return original(method, layer)
    engine = importlib.import_module("sglang.srt.layers.quantization.mxfp4")

    def convert(probe):
        made = {}
        for role in ("w13", "w2"):
            weight, _, scale = engine._swizzle_mxfp4(getattr(probe, role + "_weight"),
                                                     getattr(probe, role + "_weight_scale"), 8)
            made[role, "codes"], made[role, "scales"] = weight.storage.data, scale.storage.data
            if (role, "bias") in packed.entries:
                made[role, "bias"] = getattr(probe, role + "_weight_bias").to(torch.float32)
        return made

    canary(layer, convert)
    tensors = packed.parameters()
    for name in [n for n in tensors if n.endswith("_bias")]:
        setattr(layer, name, Parameter(tensors.pop(name), requires_grad=False))
    for role in ("w13", "w2"):  # `swizzle` finds them there
        getattr(layer, role + "_weight").mxfp4_pack = tensors[role + "_weight"], tensors[role + "_weight_scale"]
    original(method, layer)
    for name in ("w13_weight_scale", "w2_weight_scale"):
        if getattr(layer, name, None) is not None and getattr(layer, name).is_meta:
            delattr(layer, name)
    packed.done = True


def swizzle(original, weight, scale, *args, **kwargs):
    """The engine's conversion of meta parameters makes the objects and sets kernel options; storage is exchanged."""
    made = original(weight, scale, *args, **kwargs)
    packed = getattr(weight, "mxfp4_pack", None)
    if packed is not None:
        for thing, tensor in zip((made[0], made[2]), packed):
            like = thing.storage.data
            if like.dtype != tensor.dtype or any(a > b for a, b in zip(like.shape, tensor.shape, strict=True)):
                raise Refused(f"SGLang's storage is {like.dtype} {tuple(like.shape)}, packed {tensor.dtype} "
                              f"{tuple(tensor.shape)}")
            thing.storage.data = tensor
    return made


def place(layer):
    """Packed tensors become the layer's parameters."""
    for name, tensor in packed_of(layer).parameters().items():
        setattr(layer, name, Parameter(tensor, requires_grad=False))
    packed_of(layer).done = True


def after_load_model(model, *args, **kwargs):
    """No expert layer of a packed model may be left as the engine made it."""
    layers = [m for m in model.modules() if hasattr(m, "num_local_experts") and hasattr(m, "layer_id")]
    if manifest is not None and (left := [m.layer_name for m in layers if not getattr(packed_of(m), "done", False)]):
        raise Refused(f"SGLang did not load the packed experts of {', '.join(left)}: it uses another kernel for them "
                      f"than {RUNNER[manifest.backends[0]]}")
