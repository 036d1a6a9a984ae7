#include "kernels/moe/cuda/moe_storage.h"

#include <stdexcept>
#include <string>

namespace mxfp4 {

namespace {

/// The order of words of Marlin and Humming: `rows` words for 16 columns.
void set_words(OperandMatrix& m, int64_t rows) {
  m.row_bytes = int(rows * 8);
  m.k_step = 4 * m.row_bytes;
  m.chunk_step = m.row_bytes;
  m.scale_step = int(2 * rows);
}

/// Sets a matrix's steps between words and between scales.
void set_steps(OperandMatrix& v, const KernelFormat& format, int64_t n, int64_t k) {
  const auto need = [&](bool fits, const char* what) {
    if (!fits)
      throw std::invalid_argument("MoE kernel: a matrix of " + std::to_string(n) + " rows and " + std::to_string(k) +
                                  " columns: expected " + what);
  };
  switch (format.cuda) {
    case CudaReader::triton_hopper:
      need(n % 32 == 0 && k % 32 == 0, "multiples of 32");
      v.row_bytes = int(round_up(k, format.codes.columns) * 2);
      v.k_step = 128;
      v.chunk_step = 4 * v.row_bytes;
      v.scale_row = int(round_up(k / 32, format.scales.columns) * 32);
      v.scale_step = 64;
      break;
    case CudaReader::marlin:
      need(n % 64 == 0 && k % 64 == 0, "multiples of 64");
      set_words(v, n);
      break;
    case CudaReader::humming:
    case CudaReader::humming_wgmma:
      need(n % 64 == 0 && k % 32 == 0, "rows a multiple of 64, columns of 32");
      v.scale_row = int(round_up(n, format.scales.rows));
      set_words(v, v.scale_row);
      break;
    case CudaReader::flashinfer_v1:
    case CudaReader::flashinfer_v2:
      need(n % 64 == 0 && k % 128 == 0, "rows a multiple of 64, columns of 128");
      v.row_bytes = int(k / 2);
      v.k_step = 64;
      v.chunk_step = 8 * v.row_bytes;
      v.scale_row = format.cuda == CudaReader::flashinfer_v2 ? int(k * 2) : 0;
      v.scale_step = format.cuda == CudaReader::flashinfer_v2 ? 256 : int(4 * n);
      break;
    case CudaReader::none:
      throw std::invalid_argument("MoE kernel: no CUDA kernel reads this layout");
  }
}

}  // namespace

StoredMatrix stored_matrix(const KernelFormat& format, int64_t n, int64_t k) {
  StoredMatrix m{format.code_bytes(n, k), format.scale_bytes(n, k), {}};
  m.view.n = int(n);
  m.view.k = int(round_up(k, unit_k));
  m.view.word_stride = m.words;
  m.view.scale_stride = m.scales;
  set_steps(m.view, format, n, k);
  return m;
}

MoeBytes moe_bytes(const MoeConfig& c, const KernelFormat& format) {
  const StoredMatrix w13 = stored_matrix(format, 2 * c.padded_intermediate, c.padded_hidden);
  const StoredMatrix w2 = stored_matrix(format, c.padded_hidden, c.padded_intermediate);
  return {w13.words, w13.scales, w2.words, w2.scales};
}

std::string moe_refusal(const MoeConfig& c, const KernelFormat& format) try {
  if (c.experts < 1 || c.experts > max_cuda_experts) return "MoE kernel: 1 to 1024 experts";
  if (c.w13_block != 0 && c.w13_block != 1) return "MoE kernel: gate and up rows in halves or in turn, not in blocks";
  if (c.w13_block == 0 && c.padded_intermediate % 64 != 0)
    return "MoE kernel: halves of w13 must be multiples of 64 rows";
  moe_bytes(c, format);
  return {};
} catch (const std::invalid_argument& e) {
  return e.what();
}

int64_t moe_device_bytes(const MoeConfig& c, const KernelFormat& format, int64_t tokens) {
  const MoeBytes b = moe_bytes(c, format);
  const int64_t slots = tokens * c.top_k;
  return c.experts * (b.w13 + b.w13_scale + b.w2 + b.w2_scale) + tokens * (c.hidden + 2 * c.padded_hidden) * 2 +
         slots * (4 * c.padded_hidden + 2 * c.padded_intermediate);
}

}  // namespace mxfp4
