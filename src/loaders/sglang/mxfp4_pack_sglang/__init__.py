"""SGLang plugin: serves what `mxfp4-pack convert --engine sglang` wrote.

SGLang calls `register` once in every process (entry point group sglang.srt.plugins) and then applies the hooks. The
engine sees the checkpoint's original quantization_config and makes its own choices; packed layers get their raw
parameters on the meta device, and where the engine would convert them, they are read.

Facts about SGLang are from v0.5.17.
"""

from . import hooks

SRT = "sglang.srt."
QUANTIZATION = SRT + "layers.quantization."
HOOKS = [  # (function of SGLang, hook, kind)
    (SRT + "server_args.ServerArgs.__post_init__", hooks.before_server_args, "BEFORE"),
    (SRT + "utils.hf_transformers.config.get_config", hooks.after_get_config, "AFTER"),
    (SRT + "model_loader.loader.DefaultModelLoader.load_model", hooks.after_load_model, "AFTER"),
    (QUANTIZATION + "mxfp4.Mxfp4MoEMethod.create_weights", hooks.create_weights, "AROUND"),
    (QUANTIZATION + "mxfp4.Mxfp4MoEMethod.process_weights_after_loading", hooks.process_gpt_oss, "AROUND"),
    (QUANTIZATION + "mxfp4.Mxfp4MoEMethod._process_weights_for_sm90_cutlass", hooks.process_cutlass, "AROUND"),
    (QUANTIZATION + "mxfp4._swizzle_mxfp4", hooks.swizzle, "AROUND"),
    (QUANTIZATION + "mxfp4_marlin_moe.Mxfp4MarlinMoEMethod.create_weights", hooks.create_weights, "AROUND"),
    (QUANTIZATION + "mxfp4_flashinfer_cutlass_moe.Mxfp4FlashinferCutlassMoEMethod.create_weights",
     hooks.create_weights, "AROUND"),
    (QUANTIZATION + "mxfp4_flashinfer_cutlass_moe.Mxfp4FlashinferCutlassMoEMethod.process_weights_after_loading",
     hooks.process_deepseek_cutlass, "AROUND"),
    (QUANTIZATION + "marlin_utils_fp4.deinterleave_moe_mxfp4_w13_for_marlin", hooks.deinterleave, "AROUND"),
    (QUANTIZATION + "marlin_utils_fp4.prepare_moe_mxfp4_layer_for_marlin", hooks.prepare_marlin, "AROUND"),
]


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    hooks.targets = [target for target, _, _ in HOOKS]
    for target, hook, kind in HOOKS:
        HookRegistry.register(target, hook, HookType[kind])
