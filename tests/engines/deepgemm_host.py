"""DeepGEMM's transform of MXFP4 scales into the words that its kernels on SM10x and SM12x read. The transform is
DeepGEMM's own kernel, compiled for a CPU from the source in the engine's package (host_kernels.py).

The packages contain the choice and launch of the kernel only as machine code that needs a GPU. Therefore `transform`
repeats both after DeepGEMM's csrc/apis/layout.hpp and csrc/jit_kernels/impls/smxx_layout.hpp (0274ad7). It supports the
engines' requests for these scales and refuses all others. The kernel places every byte.
"""

import os
import re
from functools import lru_cache

import torch

from host_kernels import compiled, pointer, without_includes

KERNEL = "transpose_and_pack_fp32_into_ue8m0"
# How the host launches it, by the names of the kernel's template; a thread more or less moves no byte elsewhere.
LAUNCH = {"kNumThreads": 512, "BLOCK_MN": 48, "BLOCK_SF_K": 128}
BEGIN = """
#include <type_traits>
#include <utility>
#define CUTLASS_GLOBAL inline
#define CUTLASS_DEVICE inline
#define CUTLASS_HOST_DEVICE inline
#define DG_STATIC_ASSERT(condition, ...) static_assert(condition, __VA_ARGS__)
#define DG_DEVICE_ASSERT(condition) (trapped = trapped || !(condition))
#define DG_TRAP_ONLY_DEVICE_ASSERT DG_DEVICE_ASSERT
inline void cudaGridDependencySynchronize() {}
namespace deep_gemm {
using std::min;
bool trapped = false;
alignas(16) uint32_t smem_buffer[1 << 16];
namespace ptx {  // what is PTX in DeepGEMM
inline uint32_t get_lane_idx() { return threadIdx.x % 32; }
inline uint32_t ld_shared(const uint32_t* from) { return *from; }
inline void st_shared(uint32_t* to, uint32_t value) { *to = value; }
inline void st_shared(uint4* to, uint32_t x, uint32_t y, uint32_t z, uint32_t w) { *to = {x, y, z, w}; }
}  // namespace ptx
}  // namespace deep_gemm
"""
ENTRY = """
extern "C" bool entry(float* from, uint32_t* to, int rows, int groups) {
  launch_with_barriers(dim3(BLOCKS, groups), kNumThreads, [=] { deep_gemm::KERNEL<TEMPLATE>(from, to, rows MORE); });
  return deep_gemm::trapped;
}
"""


@lru_cache(maxsize=None)
def parts_of(folder):
    """(the functions that the kernel calls, the kernel, the names of its template without those that have defaults)"""
    include = os.path.join(folder, "include", "deep_gemm")
    called = "".join(without_includes(os.path.join(include, "common", name)) for name in ("math.cuh", "utils.cuh"))
    with open(os.path.join(include, "impls", "smxx_layout.cuh")) as file:
        kernel = re.search(r"template <([^>]*)>\nCUTLASS_GLOBAL void " + KERNEL + r"\((?s:.)*?\n}\n", file.read())
    names = [name.split()[-1] for name in kernel[1].split(",") if "=" not in name]
    return called, f"namespace deep_gemm {{\n{kernel[0]}}}\n", names


def kernel_of(folder, sf_k):
    called, kernel, names = parts_of(folder)
    values = LAUNCH | {"SF_K": sf_k}
    columns = -(-sf_k // values["BLOCK_SF_K"]) if "BLOCK_SF_K" in names else 1
    exchanged = {"BLOCKS": f"(rows + {values['BLOCK_MN'] - 1}) / {values['BLOCK_MN']} * {columns}", "KERNEL": KERNEL,
                 "kNumThreads": str(values["kNumThreads"]), "TEMPLATE": ", ".join(str(values[name]) for name in names),
                 "MORE": ", nullptr, 0" if "grouped_layout" in kernel else ""}
    entry = re.sub("|".join(exchanged), lambda found: exchanged[found[0]], ENTRY)
    return compiled(BEGIN + called + kernel + entry)


def transform(folder, sf, mn, k, recipe, num_groups=None, is_sfa=None, disable_ue8m0_cast=False, psum_layout=None):
    """DeepGEMM's transform_sf_into_required_layout on SM10x; folder: its package's. F32 [E, N, K/32] -> I32 [E, N, K/128],
    columns outermost."""
    gran_mn, gran_k = recipe if len(recipe) == 2 else (recipe[not is_sfa], recipe[2])
    assert (is_sfa is None) == (len(recipe) == 2) and (gran_mn, gran_k) == (1, 32)
    assert not disable_ue8m0_cast and psum_layout is None
    sf_k = -(-k // gran_k)
    assert sf.dtype == torch.float32 and sf.shape == (num_groups, mn, sf_k)
    assert sf.is_contiguous() and mn * sf_k % 4 == 0  # else the host takes another way
    aligned, packed = -(-mn // 4) * 4, -(-sf_k // 4)
    out = torch.empty_strided((num_groups, mn, packed), (packed * aligned, 1, aligned), dtype=torch.int32)
    trapped = kernel_of(folder, sf_k)(pointer(sf), pointer(out), mn, num_groups)
    assert not trapped & 0xFF, "DeepGEMM's kernel traps: a scale has a sign or a mantissa"
    return out
