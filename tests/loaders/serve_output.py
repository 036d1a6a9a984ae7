"""Serves an output of mxfp4-pack itself in the stand-ins of its engine."""

import sglang_case
import sglang_stand_in
import vllm_case
import vllm_stand_in
from golden import same


def serve_output(out, checkpoint, layers=None, **settings):
    """The first expert layers, by default all; SGLang's without drafts."""
    if checkpoint.engine == "sglang":
        sglang_case.hooks.manifest = None
        numbers = [n for namespace, n in checkpoint.layers if namespace == "model"][:layers]
        return sglang_stand_in.serve(out, checkpoint, [(f"model.layers.{n}.mlp.experts", n) for n in numbers], **settings)
    module, limit = ("mlp", None) if checkpoint.model_type == "gpt_oss" else ("ffn", 10.0)
    prefixes = [f"model.layers.{n}.{module}.experts" for n in range(len(checkpoint.layers))][:layers]
    return list(vllm_stand_in.serve(out, checkpoint, prefixes, swiglu_limit=limit, **settings).values())


def set_of(layer):
    """The packed set that a layer was read from."""
    return layer.mxfp4_pack.set if hasattr(layer, "mxfp4_pack") else layer.quant_method.packed


def all_same(test, checkpoint, layer, expected):
    if checkpoint.engine == "sglang":
        return sglang_case.all_same(test, checkpoint, layer, expected)
    for key, want in expected.items():
        same(test, vllm_case.held(layer, key), want, key)


def reset():
    """What a new process has."""
    vllm_case.quantization.canaries_passed.clear()
    sglang_case.hooks.manifest = None
    sglang_stand_in.TP.size, sglang_stand_in.TP.rank, sglang_stand_in.TP.ep_rank = 1, 0, 0
    sglang_stand_in.scale_name.value = "weight_scale"
    for stand_in in (vllm_stand_in, sglang_stand_in):
        stand_in.converter_bug.value = False
