// One row for each form of packed bytes that a kernel reads: how they are stored and which function reads them. The
// rows are in read_*.cpp. Written from the kernels' side and from nothing else: nothing in kernels/moe includes a
// layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/moe/moe.h"

namespace mxfp4 {

/// One expert's w13 or w2 in memory, n rows of k columns after the engine's padding.
struct PackedMatrix {
  const uint8_t *codes = nullptr, *scales = nullptr;
  int64_t n = 0, k = 0;
  float residual = 1;  // factor of every scale
};

/// Writes the values of a block of rows from n0, columns [k0, k1), to out[rows][k1 - k0].
using ReadBlock = void(const PackedMatrix& m, int64_t n0, int64_t k0, int64_t k1, float* out);

/// The form of a bias in the kernel: [n] elements, one per row.
enum class BiasForm { bf16, bf16_mma, f32, f32_shuffled };

/// The CUDA kernels' reader of the same bytes (kernels/moe/cuda/operand_readers.h).
enum class CudaReader { none, marlin, humming, humming_wgmma, flashinfer_v1, flashinfer_v2, triton_hopper };

/// The multiples to which a stored matrix's rows and columns are rounded up, beyond the engine's padding.
struct StoredIn {
  int64_t rows = 1, columns = 1;
};

struct KernelFormat {
  const char* name;
  /// The size of a block. A block begins at a multiple of `rows` and of `columns`, in the row order of w13 or w2. n is
  /// a multiple of `rows`. If the storage is padded, k is rounded up to a multiple of `columns`.
  int64_t rows, columns;
  ReadBlock* read;
  StoredIn codes = {};
  StoredIn scales = {};  // rows, groups of 32 columns
  BiasForm bias = BiasForm::f32;
  int64_t bias_rows = 1;             // a bias's rows are rounded up to a multiple of this
  bool bias_in_halves = false;       // gate's bias, then up's, whatever the order of the rows
  std::optional<W13Order> w13 = {};  // none: as loaded, pairs for GPT-OSS, else halves, gate first
  CudaReader cuda = CudaReader::none;
  float residual = 1;       // divisor of an expert's stored residual
  double tolerance = 1e-5;  // of relative L2 on the CPU, for `reason`
  const char* reason = "weights exact, sums of float32 products";

  /// Bytes of one expert's matrix of n rows and k columns.
  int64_t code_bytes(int64_t n, int64_t k) const;
  int64_t scale_bytes(int64_t n, int64_t k) const;
  int64_t bias_bytes(int64_t n) const;
};

/// Those of all read_*.cpp.
std::vector<const KernelFormat*> kernel_formats();
/// Throws std::out_of_range if no format has this name.
const KernelFormat& kernel_format(std::string_view name);

/// The bias of row n of one expert.
float read_bias(BiasForm form, const uint8_t* bias, int64_t n);
int64_t bias_element_bytes(BiasForm form);

}  // namespace mxfp4
