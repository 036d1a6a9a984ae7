"""The engines' own kernels that move bytes, compiled for a CPU from the sources in their packages, CUDA unchanged but for how
it is launched (cuda_host.h). DeepGEMM's: deepgemm_host.py."""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib import util
from types import SimpleNamespace

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
MIXED_UTILS = "data/csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm/moe_gemm_mixed_utils.cu"
MARLIN = "kernels/jit/csrc/gemm/marlin"

FLASHINFER_ENTRY = """
extern "C" void entry(uint8_t* from, uint8_t* to, int rows, int columns) {
  using namespace tensorrt_llm::kernels::cutlass_kernels;
  KERNEL(from, to, rows, columns, nullptr);
}
"""
SCALES = "data/csrc/nv_internal/tensorrt_llm/thop/fp4Op.cpp"
SCALES_BEGIN = """
#include <cstdlib>
#define PadUpFn(x, y) (((x) + (y) - 1) / (y) * (y))
#define TLLM_THROW(...) abort()
namespace tensorrt_llm {
enum class QuantizationSFLayout { SWIZZLED_128x4, SWIZZLED_8x4, LINEAR };
inline int64_t computeSwizzledLayoutSFSize(int64_t rows, int64_t columns) {
  return PadUpFn(rows, 128) * PadUpFn(columns, 4);
}
}
struct TensorView {
  void* data;
  std::vector<int64_t> shape;
  const std::vector<int64_t>& sizes() const { return shape; }
  void* data_ptr() const { return data; }
};
"""
SCALES_ENTRY = """
extern "C" void entry(uint8_t* from, uint8_t* to, int experts, int rows, int columns) {
  blockScaleInterleaveHost<uint8_t>({from, {experts, rows, columns}}, {to, {}});
}
"""
MARLIN_BEGIN = """
int4 sh[1 << 14];
inline int div_ceil(int a, int b) { return (a + b - 1) / b; }
inline int min(int a, int b) { return std::min(a, b); }
inline void cp_async4(void* to, const void* from) { std::memcpy(to, from, 16); }
inline void cp_async_fence() {}
template <int> void cp_async_wait() {}
"""
MARLIN_ENTRY = """
extern "C" void entry(const uint32_t* from, uint32_t* to, int k, int n) {
  launch_with_barriers(4, repack_threads, [=] { gptq_marlin_repack_kernel<repack_threads, 4, %s>(from, %s to, k, n); });
}
"""
CPU_OPS = """
#include <ATen/cpu/vec/vec.h>
#include <torch/library.h>
#include "gemm.cpp"
TORCH_LIBRARY_FRAGMENT(_C, ops) {
  ops.def("convert_weight_packed(Tensor! weight) -> Tensor");
  ops.impl("convert_weight_packed", c10::kCPU, &convert_weight_packed);
  ops.def("convert_scale_packed(Tensor! scale) -> Tensor");
  ops.impl("convert_scale_packed", c10::kCPU, &convert_scale_packed);
}
"""


def folder_of(package):
    return util.find_spec(package).submodule_search_locations[0]


def without_includes(path):
    with open(path) as file:
        return re.sub(r"(?m)^#(include|pragma once).*$", "", file.read())


def library_of(text, *options):
    """The path of a shared library of this source."""
    directory = tempfile.mkdtemp()
    source, library = (os.path.join(directory, name) for name in ("kernel.cpp", "kernel.so"))
    with open(source, "w") as file:
        file.write(text)
    subprocess.run(["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-o", library, source, *options], check=True)
    return library


@lru_cache(maxsize=None)
def compiled(text):
    text = f'#include "{HERE}/cuda_host.h"\n{text}'
    return ctypes.CDLL(library_of(text, "-fno-strict-aliasing", "-fno-gnu-unique")).entry  # each has a blockIdx of its own


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def interleave(weight, out, kind):
    """FlashInfer's binding: kind 1 is FP4, 2 FP4 for FP8 activations. Tensors are U8 [experts, rows, columns / 2]."""
    text = without_includes(os.path.join(folder_of("flashinfer"), MIXED_UTILS))
    kernel = {1: "interleave_fp4_weights_for_sm90_mixed_gemm", 2: "interleave_fp4_fp8_weights_for_sm90_mixed_gemm"}[kind]
    run = compiled(re.sub(r"(\w+)<<<(\w+), (\w+), 0, stream>>>\(", r"launch(\2, \3, \1, ", text)
                   + FLASHINFER_ENTRY.replace("KERNEL", kernel))
    for expert, made in zip(weight, out):
        run(pointer(expert), pointer(made), expert.shape[0], expert.shape[1] * 2)


def block_scale_interleave(scales):
    """FlashInfer's host code: U8 [experts, rows, columns] or without experts, to one dimension."""
    with open(os.path.join(folder_of("flashinfer"), SCALES)) as file:
        text = file.read()
    parts = [re.search(begin + r"(?s:.)*?\n}\n", text)[0]
             for begin in (r"int computeSFIndex\(", r"template <typename T>\nvoid blockScaleInterleaveHost\(")]
    run = compiled(SCALES_BEGIN + "".join(parts) + SCALES_ENTRY)
    rows, columns = scales.shape[-2:]
    experts = scales.shape[0] if scales.dim() == 3 else 1
    out = torch.empty(experts * -(-rows // 128) * 128 * -(-columns // 4) * 4, dtype=torch.uint8)
    run(pointer(scales.contiguous()), pointer(out), experts, rows, columns)
    return out


class OnGpu(torch.Tensor):
    """A tensor that says that it lies on a GPU."""
    is_cuda = True


def interleaved(original):
    """FlashInfer's own function, for tensors that do not lie on a GPU."""
    def on_gpu(thing, kind):
        return thing.as_subclass(kind) if isinstance(thing, torch.Tensor) else thing

    def call(*given):
        made = original(*(on_gpu(thing, OnGpu) for thing in given))
        return tuple(on_gpu(t, torch.Tensor) for t in made) if isinstance(made, tuple) else on_gpu(made, torch.Tensor)
    return call


@lru_cache(maxsize=None)
def aiter_shuffles():
    """AITER's module of shuffles, which is torch alone; its package, whose folder AITER_SOURCE names, needs ROCm."""
    spec = util.spec_from_file_location("shuffle", os.path.join(os.environ["AITER_SOURCE"], "ops", "shuffle.py"))
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marlin_repack(folder, kernel, entry, b_q_weight, size_k, size_n):
    """int32 [K/8, N] -> [K/16, 2N]"""
    with open(os.path.join(folder, "marlin.cuh")) as file:
        constants = "\n".join(re.findall(r"(?m)^static constexpr int .*;", file.read()))
    run = compiled(f"{MARLIN_BEGIN}{constants}{kernel}{MARLIN_ENTRY % entry}")
    out = torch.empty((size_k // 16, size_n * 2), dtype=torch.int32)
    run(pointer(b_q_weight.contiguous()), pointer(out), size_k, size_n)
    return out


def sglang_marlin_repack(b_q_weight, perm, size_k, size_n, num_bits):
    """SGLang's."""
    assert num_bits == 4 and perm.numel() == 0
    folder = os.path.join(folder_of("sglang"), MARLIN)
    kernel = without_includes(os.path.join(folder, "gptq_marlin_repack.cuh")).split("#else")[1].split("#endif")[0]
    return marlin_repack(folder, kernel, ("false", "nullptr,"), b_q_weight, size_k, size_n)


def vllm_marlin_repack(b_q_weight, perm=None, size_k=None, size_n=None, num_bits=4, is_a_8bit=False):
    """vLLM's; VLLM_MARLIN_SOURCE names the folder of its gptq_marlin_repack.cu, which only the source archive has."""
    assert num_bits == 4 and (perm is None or perm.numel() == 0)
    folder = os.environ["VLLM_MARLIN_SOURCE"]
    text = without_includes(os.path.join(folder, "gptq_marlin_repack.cu"))
    kernel = re.search(r"namespace marlin {((?s:.)*?)}  // namespace marlin", text)[1]
    is_a_8bit = str(is_a_8bit).lower()
    entry = (f"false, {is_a_8bit}", "nullptr,") if "has_perm" in kernel else (is_a_8bit, "")  # up to 0.30 or so
    return marlin_repack(folder, kernel, entry, b_q_weight, size_k, size_n)


@lru_cache(maxsize=None)
def load_vllm_cpu_ops():
    """vLLM's CPU operators convert_weight_packed and convert_scale_packed; VLLM_CPU_SOURCE names the folder of their gemm.cpp,
    which only the source archive has. With the flags of vLLM's own build, less AMX, which packing does not use."""
    site = os.path.dirname(torch.__file__)
    torch.ops.load_library(library_of(
        CPU_OPS, *(f"-mavx512{part}" for part in ("f", "vl", "bw", "dq", "bf16", "vnni")),
        "-I", os.environ["VLLM_CPU_SOURCE"], "-I", f"{site}/include", f"-L{site}/lib", "-ltorch_cpu", "-lc10"))


def exchange_flashinfer(exchange):
    """FlashInfer's byte-moving functions by its own host code and host_kernels; exchange(target, name, value) does that.
    FLASHINFER_FP4_HOST names the library of its fp4Op.cpp."""
    import flashinfer
    import flashinfer.fused_moe
    import tvm_ffi
    from flashinfer.fused_moe import core
    from flashinfer.quantization import fp4_quantization as fp4
    humming = "preprocess_moe_weights_for_sm90_mixed_gemm_humming"  # from 0.6.18 on
    if hasattr(flashinfer.fused_moe, humming):
        exchange(flashinfer.fused_moe, humming, interleaved(getattr(flashinfer.fused_moe, humming)))
    name = "interleave_moe_weights_for_sm90_mixed_gemm"
    made = interleaved(getattr(flashinfer.fused_moe, name))
    exchange(flashinfer.fused_moe, name, made)
    module = SimpleNamespace(**{name: interleave})
    exchange(core, "get_cutlass_fused_moe_module", lambda *args: module)
    exchange(torch.cuda, "get_device_capability", lambda *args: (10, 0))
    for target in (core, fp4, sys.modules.get("flashinfer.fused_moe.prepare")):
        if hasattr(target, "get_compute_capability"):
            exchange(target, "get_compute_capability", lambda *args: (10, 0))
    library = tvm_ffi.load_module(os.environ["FLASHINFER_FP4_HOST"])
    spec = SimpleNamespace(build_and_load=lambda: library)
    fp4.get_fp4_quantization_module.cache_clear()
    for name in [name for name in dir(fp4) if name.startswith("gen_fp4_quantization_")]:
        exchange(fp4, name, lambda *args, **given: spec)
