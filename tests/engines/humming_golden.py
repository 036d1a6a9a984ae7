"""Adds ENGINE.humming.* to golden layers: the conversion of `in.*` by humming-kernels for bf16 activations on SM90,
padded like in the engine. With vllm-w4a8 it adds vllm.humming_w4a8.*, for FP8 activations in groups of 128. usage:
humming_golden.py vllm|vllm-w4a8|sglang LAYER.safetensors..; a missing file is created with a random layer in halves,
whose sizes need pads of each kind.

Needs the engine's humming-kernels (vLLM 0.33.0: 0.1.19, 0.32.0: 0.1.17, the same bytes; SGLang 0.5.19 to 0.5.23: 0.1.12),
torch, jinja2, cuda-python and g++, no GPU. All of its Python runs as it is; its CUDA kernels weight_repack_nk and
process_mxfp4_w4a8 are compiled from the package's own source for the host, the first with 32 threads a block."""
import ctypes
import pathlib
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from functools import lru_cache
from importlib import util
from types import SimpleNamespace

import humming
import torch
from humming import dtypes, ops, transform
from humming.schema import HummingInputSchema, HummingWeightSchema
from safetensors import safe_open
from safetensors.torch import save_file

EXPERTS = 2
HOPPER = SimpleNamespace(sm_version=90, sm_major=9, is_ppu=False)

CUDA_ON_THE_HOST = """
#include <barrier>
#include <cassert>
#include <cmath>
#include <cstdint>
#define CUDA_INLINE inline
#define __global__
#define __shared__ static
#define PRAGMA_UNROLL
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define CEIL_DIV(a, b) ((a + b - 1) / (b))
constexpr uint32_t static_next_power_of_2(uint32_t n) { uint32_t p = 1; while (p < n) p *= 2; return p; }
struct Index { uint32_t x, y, z; };
struct uint4 { uint32_t x, y, z, w; };
inline thread_local Index threadIdx;
inline Index blockIdx, blockDim{32, 1, 1}, gridDim;
inline std::barrier warp(32);
inline void __syncthreads() { warp.arrive_and_wait(); }
"""
LAUNCH = """
#include <humming/kernel/process.cuh>
#include <humming/kernel/process_mxfp4.cuh>
#include <thread>
#include <vector>
template <uint32_t activation_bits, bool transposed, bool packed_k>
void launch(const uint32_t *in, uint32_t *out, uint32_t experts, uint32_t n, uint32_t k, uint32_t mode) {
  gridDim = {CEIL_DIV(n, 64u), CEIL_DIV(k, 64u), experts};
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < 32; ++lane)
    threads.emplace_back([=] {
      threadIdx = {lane, 0, 0};
      for (uint32_t z = 0; z < gridDim.z; ++z)
        for (uint32_t y = 0; y < gridDim.y; ++y)
          for (uint32_t x = 0; x < gridDim.x; ++x) {
            warp.arrive_and_wait();
            if (lane == 0) blockIdx = {x, y, z};
            warp.arrive_and_wait();
            weight_repack_nk<4, activation_bits, true, false, false, transposed, 0, packed_k>(in, out, nullptr, n, k, n,
                                                                                              k, mode);
          }
    });
  for (std::thread &t : threads) t.join();
}
extern "C" void repack(const uint32_t *in, uint32_t *out, uint32_t experts, uint32_t n, uint32_t k, uint32_t mode,
                       bool transposed, bool packed_k) {
  (packed_k ? launch<8, false, true> : transposed ? launch<16, true, false> : launch<16, false, false>)(in, out, experts,
                                                                                                       n, k, mode);
}
extern "C" void rewrite(uint4 *codes, uint8_t *deltas, uint32_t groups) {
  blockDim = {1, 1, 1};
  for (blockIdx = {}; blockIdx.x < groups; ++blockIdx.x) process_mxfp4_w4a8(codes, codes, deltas, groups);
  blockDim = {32, 1, 1};
}
"""


@lru_cache(maxsize=None)
def host_kernels():
    source = pathlib.Path(tempfile.mkdtemp())
    (source / "humming/utils").mkdir(parents=True)
    (source / "humming/utils/all.cuh").write_text("#pragma once" + CUDA_ON_THE_HOST)
    (source / "humming/utils/base.cuh").write_text("#include <humming/utils/all.cuh>")
    (source / "launch.cpp").write_text(LAUNCH)
    include = pathlib.Path(humming.__file__).parent / "include"
    subprocess.check_call(["g++", "-std=c++20", "-O1", "-fno-strict-aliasing", "-w", "-fno-gnu-unique",
                           "-shared", "-fPIC", "-pthread", f"-I{source}", f"-I{include}", source / "launch.cpp", "-o",
                           source / "launch.so"])
    return ctypes.CDLL(str(source / "launch.so"))


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def repack_on_the_host(kernels):
    """Takes the place of ops.repack_weight, with the same grid and arguments. use_wgmma: up to 0.1.16."""
    def repack_weight(inputs, weight_bits, activation_bits, is_weight_packed, interleave_mode, use_wgmma=False,
                      use_packed_k_layout=False, use_fused_e8m0_scale=False, **rest):
        assert (weight_bits, is_weight_packed) == (4, True)
        assert activation_bits == (8 if use_packed_k_layout else 16) and use_packed_k_layout == use_fused_e8m0_scale
        assert not any(rest.values()), rest
        experts, n, words = inputs.shape
        step = 64 if use_packed_k_layout else 16
        out = torch.empty(experts, words * 8 // step, n * step // 8, dtype=torch.int32)
        inputs = inputs.contiguous()
        kernels.repack(pointer(inputs), pointer(out), experts, n, words * 8, interleave_mode, use_wgmma,
                       use_packed_k_layout)
        return out
    return repack_weight


def rewrite_on_the_host(kernels):
    """Takes the place of ops.process_mxfp4_w4a8_weight."""
    def process_mxfp4_w4a8_weight(inputs, delta_scale_offsets, inplace):
        assert inplace and inputs.is_contiguous() and delta_scale_offsets.is_contiguous()
        assert inputs.nelement() == 4 * delta_scale_offsets.nelement()
        kernels.rewrite(pointer(inputs), pointer(delta_scale_offsets), delta_scale_offsets.nelement())
        return inputs
    return process_mxfp4_w4a8_weight


def loaded(raw, intermediate, halves, multiple):
    """vLLM pads intermediate to 64 with zeros before it converts, at the end of each half where w13 has halves."""
    pad = -intermediate % multiple
    parts = 2 if halves else 1
    out = dict(raw)
    for key in ("w13", "w13_scale", "w13_bias"):
        if key in raw:
            split = raw[key].reshape(EXPERTS, parts, -1, *raw[key].shape[2:])
            zeros = torch.zeros(EXPERTS, parts, 2 * pad // parts, *raw[key].shape[2:], dtype=raw[key].dtype)
            out[key] = torch.cat((split, zeros), 2).flatten(1, 2)
    for key, columns in (("w2", 2), ("w2_scale", 32)):
        out[key] = torch.nn.functional.pad(raw[key], (0, pad // columns))
    return out


def block_fp8():
    """vLLM's quant_key_to_input_schema(kFp8Dynamic128Sym), which vLLM uses if a model requests MXFP8."""
    from humming.config import InputQuantizationMode
    return HummingInputSchema(a_dtype=dtypes.float8e4m3, input_scale_group_size=128, input_scale_dtype=dtypes.float32,
                              input_quant_mode=InputQuantizationMode.DynamicGroup)


def converted(tag, layer, input_schema):
    weight_schema = HummingWeightSchema(b_dtype=dtypes.float4e2m1, bs_dtype=dtypes.float8e8m0,
                                        weight_scale_group_size=32)
    made = {}
    for role in ("w13", "w2"):
        codes = layer[role]
        tensors = {"weight": codes.clone().view(torch.int32),
                   "weight_scale": layer[role + "_scale"].view(torch.float8_e8m0fnu)}
        if role + "_bias" in layer:
            tensors["bias"] = layer[role + "_bias"]
        layer_config = transform.prepare_layer_config(
            shape_n=codes.shape[1], shape_k=codes.shape[2] * 2, weight_schema=weight_schema,
            input_schema=input_schema, num_experts=EXPERTS, pad_n_to_multiple=256, pad_k_to_multiple=128,
            has_bias="bias" in tensors, torch_dtype=torch.bfloat16)
        out = transform.transform_humming_tensors(layer_config, tensors)
        lossy = {"weight_scale_2"} if input_schema.a_dtype else set()
        assert set(out) == set(tensors) | lossy, set(out)
        for name, suffix in (("weight", ""), ("weight_scale", "_scale"), ("weight_scale_2", "_residual"),
                             ("bias", "_bias")):
            if name in out:
                tensor = out[name]
                made[f"{tag}.{role}{suffix}"] = tensor if name != "weight_scale" else tensor.view(torch.uint8)
    return made


def random_halves():
    """Hidden 320, intermediate 160: 2 * 192 rows of w13 become 512, its 320 columns 384, 192 columns of w2 256."""
    def some(low, high, *shape):
        return torch.randint(low, high, (EXPERTS, *shape), dtype=torch.uint8)
    raw = {"w13": some(0, 256, 320, 160), "w2": some(0, 256, 320, 80),
           "w13_scale": some(110, 135, 320, 10), "w2_scale": some(110, 135, 320, 5)}
    return raw, {"experts": str(EXPERTS), "hidden": "320", "intermediate": "160", "w13_rows": "halves"}


def add_to(path, kind):
    engine, _, w4a8 = kind.partition("-")
    if pathlib.Path(path).exists():
        with safe_open(path, "pt") as file:
            metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    else:
        raw, metadata = random_halves()
        tensors = {f"in.{name}": tensor for name, tensor in raw.items()}
    raw = {name[3:]: tensor for name, tensor in tensors.items() if name.startswith("in.")}
    layer = loaded(raw, int(metadata["intermediate"]), metadata["w13_rows"] == "halves", 64 if engine == "vllm" else 1)
    tensors |= converted(engine + ".humming" + ("_w4a8" if w4a8 else ""), layer,
                         block_fp8() if w4a8 else HummingInputSchema())
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)


def exchange_humming(exchange):
    """Humming's byte-moving kernels by its own source, compiled for the host, and the GPU that it asks for;
    exchange(target, name, value) does that."""
    kernels = host_kernels()
    exchange(ops, "repack_weight", repack_on_the_host(kernels))
    exchange(ops, "process_mxfp4_w4a8_weight", rewrite_on_the_host(kernels))
    exchange(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    exchange(torch.cuda, "device", lambda device: nullcontext())
    if util.find_spec("humming.device"):  # up to 0.1.12 it asks torch
        from humming.device import current_device
        exchange(current_device, "_value", HOPPER)
        exchange(transform, "DeviceInfo", lambda device=None: HOPPER)


if __name__ == "__main__":
    torch.manual_seed(1)
    exchange_humming(setattr)
    for file in sys.argv[2:]:
        add_to(file, sys.argv[1])
