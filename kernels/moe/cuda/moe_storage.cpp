#include "kernels/moe/cuda/moe_storage.h"

#include <stdexcept>
#include <string>

namespace mxfp4 {
namespace {

int64_t up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

struct Named {
  std::string_view fragment;
  MoeStorage storage;
};
constexpr MoeFormat triton = MoeFormat::triton_hopper;
constexpr Named storages[] = {
    {"marlin", {MoeFormat::marlin}},
    {"flashinfer-sm90-v1", {MoeFormat::flashinfer_v1}},
    {"flashinfer-sm90-v2", {MoeFormat::flashinfer_v2}},
    {"triton-hopper-a", {triton, 16, 64, 8}},
    {"triton-hopper-b", {triton, 64, 128, 8}},
    {"triton-hopper-c", {triton, 256, 128, 8}},
    {"triton-hopper-a-w4", {triton, 16, 64, 4}},
    {"triton-hopper-b-w4", {triton, 64, 128, 4}},
    {"triton-hopper-c-w4", {triton, 256, 128, 4}},
};

}  // namespace

const MoeStorage* find_moe_storage(std::string_view fragment) {
  for (const Named& n : storages)
    if (n.fragment == fragment) return &n.storage;
  return nullptr;
}

StoredMatrix stored_matrix(const MoeStorage& s, int64_t n, int64_t k) {
  const bool triton = s.format == MoeFormat::triton_hopper, marlin = s.format == MoeFormat::marlin;
  const auto need = [&](bool fits, const char* what) {
    if (!fits)
      throw std::invalid_argument("MoE kernel: a matrix of " + std::to_string(n) + " rows and " + std::to_string(k) +
                                  " columns: expected " + what);
  };
  if (triton)
    need(n % 32 == 0 && k % 32 == 0 && s.row_multiple % 16 == 0 && s.k_multiple % 64 == 0 && s.scale_warps > 0,
         "multiples of 32, stored in multiples of 16 rows and 64 columns");
  else if (marlin)
    need(n % 64 == 0 && k % 64 == 0, "multiples of 64");
  else
    need(n % 64 == 0 && k % 128 == 0, "rows a multiple of 64, columns of 128");

  StoredMatrix m;
  FragmentMatrix& v = m.view;
  v.n = int(n), v.k = int(up(k, 64)), v.scale_warps = s.scale_warps;
  if (triton) {
    const int64_t rows = up(n, s.row_multiple), columns = up(k, s.k_multiple), groups = up(k / 32, 4);
    v.row_bytes = int(columns * 2), v.k_step = 128, v.chunk_step = 4 * v.row_bytes;
    v.scale_row = int(groups * 32), v.scale_step = 64;
    m.words = rows * columns / 2, m.scales = up(n, 32 * s.scale_warps) * groups;
  } else if (marlin) {
    v.row_bytes = int(n * 8), v.k_step = 4 * v.row_bytes, v.chunk_step = v.row_bytes, v.scale_step = int(2 * n);
    m.words = n * k / 2, m.scales = n * k / 32;
  } else {
    const bool v2 = s.format == MoeFormat::flashinfer_v2;
    v.row_bytes = int(k / 2), v.k_step = 64, v.chunk_step = 8 * v.row_bytes;
    v.scale_row = v2 ? int(k * 2) : 0, v.scale_step = v2 ? 256 : int(4 * n);
    m.words = n * k / 2, m.scales = n * k / 32;
  }
  v.word_stride = m.words, v.scale_stride = m.scales;
  return m;
}

MoeBytes moe_bytes(const MoeConfig& c, const MoeStorage& s) {
  const StoredMatrix w13 = stored_matrix(s, 2 * c.padded_intermediate, c.padded_hidden);
  const StoredMatrix w2 = stored_matrix(s, c.padded_hidden, c.padded_intermediate);
  return {w13.words, w13.scales, w2.words, w2.scales, s.format == MoeFormat::triton_hopper ? 4 : 2};
}

std::string moe_refusal(const MoeConfig& c, const MoeStorage& storage) try {
  if (c.experts < 1 || c.experts > max_cuda_experts) return "MoE kernel: 1 to 1024 experts";
  if (c.w13_block != 0 && c.w13_block != 1) return "MoE kernel: gate and up rows in halves or in turn, not in blocks";
  if (c.w13_block == 0 && c.padded_intermediate % 64 != 0)
    return "MoE kernel: halves of w13 must be multiples of 64 rows";
  moe_bytes(c, storage);
  return {};
} catch (const std::invalid_argument& e) {
  return e.what();
}

int64_t moe_device_bytes(const MoeConfig& c, const MoeStorage& storage, int64_t tokens) {
  const MoeBytes b = moe_bytes(c, storage);
  const int64_t slots = tokens * c.top_k;
  return c.experts * (b.w13 + b.w13_scale + b.w2 + b.w2_scale) + tokens * (c.hidden + 2 * c.padded_hidden) * 2 +
         slots * (4 * c.padded_hidden + 2 * c.padded_intermediate);
}

}  // namespace mxfp4
