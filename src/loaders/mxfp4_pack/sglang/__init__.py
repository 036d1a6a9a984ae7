"""SGLang plugin: serves what `mxfp4-pack convert --engine sglang` wrote.

SGLang calls `register` once in every process (entry point group sglang.srt.plugins) and then applies the hooks. The
engine sees the checkpoint's original quantization_config and makes its own choices; packed layers get their raw
parameters on the meta device, and where the engine would convert them, they are read.

Facts about SGLang are from v0.5.17.
"""

from . import hooks

SRT = "sglang.srt."
METHODS = [SRT + "layers.quantization." + name for name in (
    "mxfp4.Mxfp4MoEMethod", "mxfp4_marlin_moe.Mxfp4MarlinMoEMethod",
    "mxfp4_flashinfer_cutlass_moe.Mxfp4FlashinferCutlassMoEMethod")]
HOOKS = [  # (function of SGLang, hook, kind)
    (SRT + "server_args.ServerArgs.__post_init__", hooks.before_server_args, "BEFORE"),
    (SRT + "utils.hf_transformers.config.get_config", hooks.after_get_config, "AFTER"),
    (SRT + "model_loader.loader.DefaultModelLoader.load_model", hooks.after_load_model, "AFTER"),
    *[(method + ".create_weights", hooks.create_weights, "AROUND") for method in METHODS],
    *[(method + ".process_weights_after_loading", hooks.process, "AROUND") for method in METHODS],
]


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    hooks.targets = [target for target, _, _ in HOOKS]
    for target, hook, kind in HOOKS:
        HookRegistry.register(target, hook, HookType[kind])
