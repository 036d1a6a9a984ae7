"""SGLang plugin: serves what `mxfp4-pack convert --engine sglang` wrote.

SGLang calls `register` once in every process (entry point group sglang.srt.plugins) and then applies the hooks. The
engine sees the checkpoint's original quantization_config and makes its own choices. The unpacked parameters of packed
layers are on the meta device. Instead of the engine's conversion, packed tensors are read.

Facts about SGLang are from v0.5.17 to v0.5.23.
"""

import os

from . import arguments, hooks, memory, offload, updates

SRT = "sglang.srt."
METHODS = [SRT + "layers.quantization." + name for name in (
    "mxfp4.Mxfp4MoEMethod", "mxfp4_marlin_moe.Mxfp4MarlinMoEMethod",
    "mxfp4_flashinfer_cutlass_moe.Mxfp4FlashinferCutlassMoEMethod",
    "mxfp4_flashinfer_trtllm_moe.Mxfp4FlashinferTrtllmMoEMethod")]
HUMMING = SRT + "layers.quantization.mxfp4_humming_moe.Mxfp4HummingMoEMethod"  # from SGLang 0.5.19 on
SCHEDULERS_UPDATER = SRT + "managers.scheduler_components.weight_updater."
WEIGHT_UPDATER = SRT + "model_executor.model_runner_components.weight_updater.WeightUpdater."
HOOKS = [  # (function of SGLang, hook, kind)
    (SRT + "utils.hf_transformers.config.get_config", hooks.after_get_config, "AFTER"),
    (SRT + "model_loader.loader.device_loading_context", hooks.staged, "AROUND"),
    (SRT + "model_loader.loader.DefaultModelLoader.load_model", updates.around_load_model, "AROUND"),
    (WEIGHT_UPDATER + "update_weights_from_disk", updates.from_disk, "AROUND"),
    (WEIGHT_UPDATER + "update_weights_from_tensor", updates.from_tensor, "AROUND"),
    (SRT + "utils.offloader.OffloaderV1.maybe_offload_to_cpu", offload.around, "AROUND"),
    (SCHEDULERS_UPDATER + "_export_static_state", memory.after_export, "AFTER"),
    (SCHEDULERS_UPDATER + "_import_static_state", memory.after_import, "AFTER"),
]


def method_hooks(method):
    return [(method + ".create_weights", hooks.create_weights, "AROUND"),
            (method + ".process_weights_after_loading", hooks.process, "AROUND")]


def methods():
    """The hooks for functions that the installed SGLang has. Their modules are not imported yet."""
    import sglang
    folder = os.path.join(sglang.__path__[0], "srt", "layers", "quantization")
    has_humming = os.path.exists(os.path.join(folder, "mxfp4_humming_moe.py"))
    return [*METHODS, HUMMING] if has_humming else METHODS


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    all_hooks = [(f"{SRT}server_args.ServerArgs.{arguments.step()}", arguments.around, "AROUND"), *HOOKS,
                 *[hook for method in methods() for hook in method_hooks(method)]]
    hooks.targets = [target for target, _, _ in all_hooks]
    for target, hook, kind in all_hooks:
        HookRegistry.register(target, hook, HookType[kind])
