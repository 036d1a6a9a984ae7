"""Makes testdata/golden/layer_sglang_*.safetensors: random layers whose sizes SGLang pads, and what its own code makes of
them on a CPU. usage: sglang_golden.py OUT-DIRECTORY

Needs SGLang 0.5.23 with the triton_kernels of the sglang-kernel that it asks for; with an earlier SGLang and its own it makes
layer_sglang_triton_b64 (0.5.19 to 0.5.21) or layer_sglang_triton_b64_pairs (0.5.17, 0.5.18). Marlin's codes, which a CUDA kernel repacks, are added by
sglang_sources_golden.py."""
import sys
from contextlib import ExitStack
from types import SimpleNamespace
from unittest import mock

import sglang
import torch

from sglang.srt.layers.quantization import marlin_utils_fp4, mxfp4, mxfp4_marlin_moe
from triton_kernels.tensor_details import layout

from golden_layer import EXPERTS, fill, random_layer, write

HOPPER, AMPERE = (SimpleNamespace(is_sm90=sm == 90, is_sm100=False, is_sm120=False, is_cuda=True, is_hip=False, is_npu=False,
                                  device_capability=divmod(sm, 10)) for sm in (90, 80))


def on(platform):
    """Makes queries about the GPU return this platform."""
    stack = ExitStack()
    for module in (mxfp4, mxfp4_marlin_moe):
        stack.enter_context(mock.patch.object(module, "get_platform", lambda: platform, create=True))
    stack.enter_context(mock.patch.object(
        layout, "cuda_capability_geq", lambda major, minor=0: (major, minor) <= platform.device_capability))
    return stack


def layer_of(method, hidden, intermediate, **given):
    layer = torch.nn.Module()
    layer.num_local_experts, layer.hidden_size, layer.intermediate_size_per_partition = EXPERTS, hidden, intermediate
    method.create_weights(layer=layer, num_experts=EXPERTS, hidden_size=hidden,
                          intermediate_size_per_partition=intermediate, params_dtype=torch.bfloat16, **given)
    return layer


def triton(raw, hidden, intermediate, tag):
    method = object.__new__(mxfp4.Mxfp4MoEMethod)
    method._fi_kernel = None
    for name in ("use_marlin", "use_mega_moe", "use_deep_gemm", "use_flashinfer"):
        setattr(method, name, False)
    with mock.patch.object(mxfp4, "has_triton_kernels", True):
        layer = layer_of(method, hidden, intermediate, with_bias=True)
    made = {}
    for role in ("w13", "w2"):
        fill(getattr(layer, role + "_weight"), raw[role], False)
        fill(getattr(layer, role + "_weight_scale"), raw[role + "_scale"], False)
        bias = getattr(layer, role + "_weight_bias").data
        bias[:, :raw[role + "_bias"].shape[1]] = raw[role + "_bias"]
        codes, _, scale = mxfp4._swizzle_mxfp4(getattr(layer, role + "_weight").data,
                                               getattr(layer, role + "_weight_scale").data, 8)
        name = f"sglang.{tag}.{role}"
        made[name] = codes.storage.data.transpose(-1, -2).contiguous()
        made[name + "_scale"] = scale.storage.data.transpose(-1, -2).contiguous()
        made[name + "_bias"] = bias.float()
    return made


def marlin_scales(raw, hidden, intermediate):
    method = mxfp4_marlin_moe.Mxfp4MarlinMoEMethod(None, "")
    layer = layer_of(method, hidden, intermediate)
    for role in ("w13", "w2"):
        getattr(layer, role + "_weight").data.zero_()
        fill(getattr(layer, role + "_weight_scale_inv"), raw[role + "_scale"], role == "w13")
    with mock.patch.object(marlin_utils_fp4, "_repack_moe_fp4_weight_for_marlin", lambda weight, **_: weight), \
            mock.patch.object(marlin_utils_fp4, "marlin_make_workspace", lambda device, n: None):
        marlin_utils_fp4.prepare_moe_mxfp4_layer_for_marlin(layer)
    return {f"sglang.marlin_i64.{role}_scale": getattr(layer, role + "_weight_scale").data.view(torch.uint8)
            for role in ("w13", "w2")}


def main(directory):
    torch.manual_seed(1)
    with on(HOPPER):
        raw = random_layer(96, 160, True)
        release = int(sglang.__version__.split(".")[2])
        if release < 22:
            version = "b64" if release > 18 else "b64-pairs"
            return write(directory, "sglang_triton_" + version.replace("-", "_"), "pairs", raw, triton(raw, 96, 160, "triton_hopper_" + version),
                         96, 160)
        write(directory, "sglang_triton", "pairs", raw, triton(raw, 96, 160, "triton_hopper_c64"), 96, 160)
        for name, hidden in (("marlin", 256), ("marlin_corner", 192)):
            raw = random_layer(hidden, 160, False)
            write(directory, "sglang_" + name, "halves", raw, marlin_scales(raw, hidden, 160), hidden, 160)
    with on(AMPERE):
        raw = random_layer(96, 160, True)
        write(directory, "sglang_canonical", "pairs", raw, triton(raw, 96, 160, "canonical"), 96, 160)


if __name__ == "__main__":
    main(sys.argv[1])
