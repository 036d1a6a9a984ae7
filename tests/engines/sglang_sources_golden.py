"""Golden layers by SGLang's own functions, of sizes that it pads. usage: sglang_sources_golden.py DIRECTORY

Makes random layers of GPT-OSS's form, converted by SGLang's method. layer_sglang_flashinfer.safetensors is for
FlashInfer's W4A8 on SM90 and TRTLLM on SM100. layer_sglang_cutlass.safetensors and layer_sglang_corner.safetensors
(with padded hidden) are for FlashInfer CUTLASS on SM90 (W4A16) and SM120 (MXFP8). layer_sglang_aiter.safetensors is for
AITER on gfx950. Adds Marlin's codes to layer_sglang_marlin.safetensors and layer_sglang_marlin_corner.safetensors.

Needs torch, and the sources of SGLang 0.5.23 and FlashInfer 0.7.2 on PYTHONPATH. The sources are not imported: the
converting functions are extracted from their files and run unchanged on a CPU, with CUDA kernels compiled for the host.
AITER_SOURCE names the folder aiter of AITER's sources (e404860), whose shuffles are torch."""

import ast
import functools
import os
import struct
import sys
import typing
from importlib import util
from types import SimpleNamespace

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import Parameter

import host_kernels
from golden_layer import EXPERTS, fill, random_layer, write

PREPARE = ("_preprocess_humming_e8m0_weight_scale", "_humming_mxfp4_w4a8_rewrite_lut_cpu",
           "_process_humming_mxfp4_w4a8_payload", "preprocess_moe_weights_for_sm90_mixed_gemm_humming",
           "interleave_moe_scales_for_sm90_mixed_gemm")


def functions(package, file, names, given):
    """Functions and methods (CLASS.NAME) of a source file. given: the names that they need from other modules."""
    with open(os.path.join(host_kernels.folder_of(package), file)) as source:
        tree = ast.parse(source.read())
    scopes = [("", tree.body)] + [(node.name + ".", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
    found = [node for scope, body in scopes for node in body
             if isinstance(node, ast.FunctionDef) and scope + node.name in names]
    assert len(found) == len(names)
    for node in found:
        node.decorator_list = [d for d in node.decorator_list if "flashinfer_api" not in ast.unparse(d)]
    space = dict(given)
    exec(compile(ast.Module(body=found, type_ignores=[]), file, "exec"), space)
    return SimpleNamespace(**{node.name: space[node.name] for node in found})


def interleave(weight, kind):
    out = torch.empty_like(weight)
    host_kernels.interleave(weight.contiguous(), out, {"fp4": 1, "fp4_fp8": 2}[kind])
    return out


def flashinfer():
    made = functions("flashinfer", "fused_moe/prepare.py", PREPARE, {
        "torch": torch, "functools": functools, "struct": struct, "Tuple": typing.Tuple,
        "interleave_moe_weights_for_sm90_mixed_gemm": interleave})
    name = "preprocess_moe_weights_for_sm90_mixed_gemm_humming"
    original = getattr(made, name)

    def on_gpu(weight, scale):
        return [t.as_subclass(torch.Tensor)
                for t in original(*(t.as_subclass(host_kernels.OnGpu) for t in (weight, scale)))]
    module = SimpleNamespace(**{name: on_gpu}, block_scale_interleave=host_kernels.block_scale_interleave,
                             __spec__=util.find_spec("flashinfer"))
    sys.modules["flashinfer"] = sys.modules["flashinfer.fused_moe"] = module
    return lambda scale, group_size: made.interleave_moe_scales_for_sm90_mixed_gemm(
        scale.as_subclass(host_kernels.OnGpu), group_size).as_subclass(torch.Tensor)


def no_a2a():
    return SimpleNamespace(is_mori=lambda: False)


def method(interleave_scales):
    """SGLang's Mxfp4MoEMethod."""
    with open(os.path.join(host_kernels.folder_of("flashinfer"), "utils.py")) as file:
        maps = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(file.read()).body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("RowMap")}
    rows = functions("flashinfer", "utils.py", ("get_shuffle_block_size", "get_shuffle_matrix_a_row_indices",
                                                "get_shuffle_matrix_sf_a_row_indices"), {"torch": torch, **maps})
    cached = functions("flashinfer", "fused_moe/core.py", ["get_w2_permute_indices_with_cache"],
                       {"torch": torch, "Union": typing.Union, **vars(rows)})
    names = ["Mxfp4MoEMethod._process_weights_for_sm90_cutlass", "Mxfp4MoEMethod._process_weights_for_sm120_cutlass",
             "Mxfp4MoEMethod.process_weights_after_loading"]
    return functions("sglang", "srt/layers/quantization/mxfp4.py",
                     names + ["_get_flashinfer_mxfp4_device_permute_indices"], {
        "torch": torch, "Parameter": Parameter, "Optional": typing.Optional, **vars(cached), "_flashinfer_mxfp4_permute_indices_cache": {},
        "_flashinfer_mxfp4_permute_indices_device_cache": {},
        "get_moe_a2a_backend": no_a2a,
        "nvfp4_block_scale_interleave": host_kernels.block_scale_interleave,
        "interleave_moe_weights_for_sm90_mixed_gemm": interleave,
        "interleave_moe_scales_for_sm90_mixed_gemm": interleave_scales, "_use_aiter": False})


def by_aiter(raw, hidden, intermediate):
    """SGLang's method rounds both sizes up to 256."""
    columns, rows = -(-hidden // 256) * 256, -(-intermediate // 256) * 256
    sys.modules["aiter.jit.utils.chip_info"] = SimpleNamespace(get_gfx=lambda: "gfx950")
    shuffles, on = host_kernels.aiter_shuffles(), SimpleNamespace(get=lambda: True)
    own = functions("sglang", "srt/layers/quantization/mxfp4.py", ["Mxfp4MoEMethod.process_weights_after_loading"], {
        "torch": torch, "Optional": typing.Optional, "_use_aiter": True,
        "get_moe_a2a_backend": no_a2a, "envs": SimpleNamespace(SGLANG_USE_AITER_MOE_GU_ITLV=on),
        **{name: getattr(shuffles, name) for name in ("shuffle_weight_a16w4", "shuffle_scale_a16w4")}})
    layer = loaded(raw, columns, rows)
    off = dict.fromkeys(("use_marlin", "use_deep_gemm", "use_mega_moe", "use_flashinfer"), False)
    own.process_weights_after_loading(SimpleNamespace(num_experts=EXPERTS, _fi_kernel=None, **off), layer)
    return results("aiter", layer, NAMES)


def loaded(raw, columns, rows):
    """The layer before conversion: columns of w13, gate and up rows of it. Buffers of scales begin with 1.0."""
    experts = raw["w13"].shape[0]
    layer = SimpleNamespace(num_local_experts=experts, moe_runner_config=SimpleNamespace())

    def buffer(name, value, dtype, *shape):
        setattr(layer, name, Parameter(torch.full((experts, *shape), value, dtype=dtype), requires_grad=False))
    for role, n, k in (("w13", 2 * rows, columns), ("w2", columns, rows)):
        buffer(role + "_weight", 0, torch.uint8, n, k // 2)
        buffer(role + "_weight_scale", 0x7F, torch.uint8, n, k // 32)
        buffer(role + "_weight_bias", 0, torch.bfloat16, n)
        fill(getattr(layer, role + "_weight"), raw[role], False)
        fill(getattr(layer, role + "_weight_scale"), raw[role + "_scale"], False)
        bias = raw[role + "_bias"]
        getattr(layer, role + "_weight_bias").data[:, :bias.shape[1]] = bias
    return layer


def results(tag, layer, names):
    return {f"sglang.{tag}.{role}{suffix}": getattr(layer, role + name).data
            for role in ("w13", "w2") for suffix, name in names.items()}


NAMES = {"": "_weight", "_scale": "_weight_scale", "_bias": "_weight_bias"}


def by_cutlass(own, raw, hidden, intermediate):
    """SGLang's layer rounds hidden up to 256, its method intermediate to 128."""
    columns = -(-hidden // 256) * 256
    self = SimpleNamespace(_padded_intermediate=-(-intermediate // 128) * 128, _padded_hidden=columns,
                           _unpadded_hidden=hidden, _use_sm90_humming=False)
    bf16, mxfp8 = loaded(raw, columns, intermediate), loaded(raw, columns, intermediate)
    own._process_weights_for_sm90_cutlass(self, bf16)
    own._process_weights_for_sm120_cutlass(self, mxfp8)
    return results("cutlass_bf16", bf16, NAMES) | results("cutlass_mxfp8", mxfp8, NAMES)


def converted(own, raw, hidden, intermediate):
    """SGLang's layer rounds hidden up to 256, its method intermediate to 128."""
    columns, rows = -(-hidden // 256) * 256, -(-intermediate // 128) * 128
    self = SimpleNamespace(_padded_intermediate=rows, _padded_hidden=columns, _unpadded_hidden=hidden,
                           _use_sm90_humming=True)
    w4a8, trtllm = loaded(raw, columns, intermediate), loaded(raw, columns, rows)
    own._process_weights_for_sm90_cutlass(self, w4a8)
    assert w4a8.humming_fc2_act_scale.shape == () and w4a8.humming_fc2_act_scale == 1
    own.process_weights_after_loading(
        SimpleNamespace(use_marlin=False, use_deep_gemm=False, use_mega_moe=False, use_flashinfer=True, hidden_size=columns,
                        _fi_kernel="trtllm_sm100", intermediate_size_per_partition=rows), trtllm)
    for role in ("w13", "w2"):
        scales = getattr(trtllm, role + "_weight_scale")
        scales.data = scales.data.view(torch.uint8)
    return (results("flashinfer_humming", w4a8, NAMES | {"_residual": "_humming_residual_scale"}) |
            results("flashinfer_trtllm", trtllm, NAMES))


MARLIN = ("prepare_moe_mxfp4_layer_for_marlin", "_repack_moe_fp4_weight_for_marlin", "_get_optional_param",
          "_permute_moe_fp4_scales_for_marlin", "mxfp4_marlin_process_scales", "_normalize_scale_tensor")


def marlin(path):
    """A layer of DeepSeek-V4's form."""
    with safe_open(path, "pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    folder = "srt/layers/quantization/"
    permute = functions("sglang", folder + "marlin_utils.py", ["get_scale_perms", "marlin_permute_scales"],
                        {"torch": torch})
    prepare = functions("sglang", folder + "marlin_utils_fp4.py", MARLIN, {
        "torch": torch, "Callable": typing.Callable, "marlin_permute_scales": permute.marlin_permute_scales,
        "marlin_make_workspace": lambda device, blocks: None, "gptq_marlin_repack": host_kernels.sglang_marlin_repack})
    layer, hidden = SimpleNamespace(), -(-int(metadata["hidden"]) // 256) * 256  # as create_weights makes it
    for role in ("w13", "w2"):
        for name, suffix, value, elements in (("_weight", "", 0, 2), ("_weight_scale_inv", "_scale", 0x7F, 32)):
            raw = tensors[f"in.{role}{suffix}"]
            rows, columns = (raw.shape[1], hidden // elements) if role == "w13" else (hidden, raw.shape[2])
            setattr(layer, role + name, Parameter(torch.full((raw.shape[0], rows, columns), value, dtype=raw.dtype),
                                                  requires_grad=False))
            fill(getattr(layer, role + name), raw, False)
    prepare.prepare_moe_mxfp4_layer_for_marlin(layer)
    for role in ("w13", "w2"):
        scales = getattr(layer, role + "_weight_scale").data.view(torch.uint8)
        assert torch.equal(scales, tensors[f"sglang.marlin_i64.{role}_scale"])
        tensors["sglang.marlin_i64." + role] = getattr(layer, role + "_weight").data
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)


def main(directory):
    torch.manual_seed(1)
    torch.cuda.empty_cache = lambda: None
    torch.Tensor.cuda = lambda self: self
    own = method(flashinfer())
    raw = random_layer(192, 96, True)
    for name in ("marlin", "marlin_corner"):
        marlin(os.path.join(directory, f"layer_sglang_{name}.safetensors"))
    write(directory, "sglang_flashinfer", "pairs", raw, converted(own, raw, 192, 96), 192, 96)
    raw = random_layer(256, 96, True)
    write(directory, "sglang_cutlass", "pairs", raw, by_cutlass(own, raw, 256, 96), 256, 96)
    raw = random_layer(192, 96, True)
    write(directory, "sglang_corner", "pairs", raw, by_cutlass(own, raw, 192, 96), 192, 96)
    torch.manual_seed(2)
    raw = random_layer(192, 160, True)
    write(directory, "sglang_aiter", "pairs", raw, by_aiter(raw, 192, 160), 192, 160)


if __name__ == "__main__":
    main(sys.argv[1])
