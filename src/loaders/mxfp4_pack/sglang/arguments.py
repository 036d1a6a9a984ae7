"""The first hook of a start: the step in which SGLang completes its arguments."""

import importlib
import os

from mxfp4_pack import Manifest, Refused, is_packed, kernel_of
from mxfp4_pack._errors import refuse_options

UNPLACED = "SGLang's GptOssSparseMoeBlock gives its router no expert_location_dispatch_info, so tokens miss experts that moved"
# Formats of DefaultModelLoader, which ends in `after_load_model`, for safetensors files.
LOAD_FORMATS = ("auto", "safetensors", "fastsafetensors", "instanttensor")
OTHERS = f"the plugin serves {', '.join(LOAD_FORMATS)}"
# Why other formats are refused.
REASONS = {"dummy": "it fills parameters that packed experts do not have",
           "presharded": "it would store the experts a second time, below the packed directory",
           "sharded_state": "it needs experts before the conversion"}
DAEMON = "its daemon does not run the plugin's hooks"
# The directory whose arguments were checked. The processes that load the model inherit this variable. If SGLang no
# longer calls the hook, the variable is missing, and refuse_unchecked() stops the start.
CHECKED = "MXFP4_PACK_SGLANG_CHECKED"


def step():
    """The name of the hooked step. From SGLang 0.5.19 on it is `resolve_once`; 0.5.20 and later never call a replaced
    __post_init__."""
    server_args = importlib.import_module("sglang.srt.server_args").ServerArgs
    return "resolve_once" if hasattr(server_args, "resolve_once") else "__post_init__"


def around(original, args, *rest, **given):
    """Sets the MoE runner to a packed one, and refuses settings that packed experts do not support."""
    if getattr(args, "_resolution_finished", False) or not is_packed(args.model_path):  # finished by the parent process
        return original(args, *rest, **given)
    packed = Manifest(args.model_path, "sglang")
    fields = packed.best(args.moe_runner_backend, moe_tp_size(args))
    args.moe_runner_backend = kernel_of(fields)
    for name, value in fields["requires"].items():
        if getattr(args, name, None) == "default":
            setattr(args, name, value)
    refuse_settings(args, packed)
    os.environ[CHECKED] = os.path.realpath(args.model_path)
    result = original(args, *rest, **given)
    packed.check_tp_size(resolved(args, "moe_runner_backend"), moe_tp_size(args))
    return result


def resolved(args, name):
    """The value that SGLang chose for an argument; later versions keep it separate from the fields."""
    for _, declared in reversed(getattr(args, "_resolved_overrides", None) or ()):
        if name in declared:
            return declared[name]
    return getattr(args, name, None)


def moe_tp_size(args):
    parts = resolved(args, "tp_size") or 1
    for name in ("ep_size", "moe_dp_size"):
        parts //= max(resolved(args, name) or 1, 1)
    return max(parts, 1)


def refuse_settings(args, packed):
    """Refuses settings under which SGLang itself cannot serve packed experts, or does not call the other hooks."""
    if (draft := getattr(args, "speculative_moe_runner_backend", None)) not in (None, "auto"):
        packed.kernel(draft, moe_tp_size(args))
    given = {name: getattr(args, name, None) for name in (
        "enable_eplb", "ep_num_redundant_experts", "init_expert_location", "offload_group_size", "load_format",
        "weight_cache_mode", "enable_elastic_expert_backup")}
    is_gpt_oss = packed.model_type == "gpt_oss"
    refused = {
        f"--enable-eplb ({UNPLACED})": is_gpt_oss and given["enable_eplb"],
        f"--init-expert-location ({UNPLACED})": is_gpt_oss and given["init_expert_location"] not in (None, "trivial"),
        "--ep-num-redundant-experts (SGLang's GptOssForCausalLM._load_mxfp4_experts_weights gives each rank its share of "
        "config.num_local_experts, without redundant ones)": is_gpt_oss and given["ep_num_redundant_experts"],
        "--offload-group-size (SGLang's OffloaderV2.wrap_modules asks for a submodule_accessor, which its DeepseekV2Model "
        "alone gives)": (given["offload_group_size"] or 0) > 0,
        "--enable-elastic-expert-backup (it overwrites packed experts)": given["enable_elastic_expert_backup"],
        f"--load-format {given['load_format']} ({REASONS.get(given['load_format'], OTHERS)})":
        given["load_format"] not in LOAD_FORMATS,
        f"--weight-cache-mode {given['weight_cache_mode']} ({DAEMON})": given["weight_cache_mode"] not in (None, "off"),
    }
    refuse_options(refused)


def refuse_unchecked(directory):
    """Refuses a packed model whose arguments were not checked."""
    if os.environ.get(CHECKED) != os.path.realpath(directory):
        raise Refused(f"{directory}: SGLang did not run the plugin's hook ServerArgs.{step()} for this model, so its "
                      "arguments are unchecked. This plugin knows SGLang 0.5.17 to 0.5.23, and packed experts of the "
                      "served model itself, not of a separate draft model")
