#include "kernels/moe/cpu/kernel_format.h"

#include <stdexcept>
#include <string>

#include "kernels/moe/cpu/readers.h"

namespace mxfp4 {

/// The readers of the formats below, defined in read_*.cpp.
namespace readers {
ReadBlock read_marlin, read_marlin_fp8, read_humming, read_humming_wgmma, read_humming_fp8, read_sm90_v1, read_sm90_v2,
    read_sm90_fp4fp8, read_triton_hopper_a, read_triton_hopper_b, read_triton_hopper_b_pairs, read_triton_hopper_a_w4,
    read_triton_hopper_b_w4, read_triton_hopper_a_strided, read_triton_hopper_b_strided, read_triton_blackwell,
    read_sm100, read_trtllm, read_deepgemm, read_deepgemm_mega, read_aiter, read_triton_cdna4, read_triton_rocm,
    read_vllm_cpu, read_canonical;
}  // namespace readers

namespace {

using namespace readers;

constexpr W13Order gate_up{0, false}, up_gate{0, true};

constexpr KernelFormat flashinfer(const char* name, int64_t rows, ReadBlock* read, CudaReader cuda = CudaReader::none) {
  return {
      .name = name, .rows = rows, .columns = 128, .read = read, .bias = BiasForm::bf16, .w13 = up_gate, .cuda = cuda};
}

/// A format whose codes were rewritten. Codes whose scale is more than 11 powers of two below the largest lose their
/// last bits.
constexpr KernelFormat rewritten(KernelFormat f) {
  f.tolerance = 1e-3;
  f.reason = "codes rewritten to a scale range of 11 powers of two";
  return f;
}

/// SGLang keeps a residual with the 2^6 that E4M3's exponent lacks.
constexpr KernelFormat flashinfer_humming_64() {
  KernelFormat f = rewritten(flashinfer("flashinfer-humming-64", 64, read_sm90_fp4fp8));
  f.residual = 64;
  return f;
}

constexpr KernelFormat cutlass_mxfp4() {
  KernelFormat f = flashinfer("cutlass-mxfp4", 128, read_sm100);
  f.w13 = gate_up;
  return f;
}

constexpr KernelFormat cutedsl() {
  KernelFormat f = flashinfer("flashinfer-cutedsl", 128, read_sm100);
  f.w13 = W13Order{64, true};
  return f;
}

/// Three generations. groups: the multiple to which scales are padded; the CUDA kernel reads four at once.
constexpr StoredIn a{16, 64}, b{64, 128}, c{256, 128};
constexpr KernelFormat triton_hopper(const char* name, ReadBlock* read, StoredIn codes, int64_t groups = 4) {
  return {.name = name,
          .rows = 16,
          .columns = 64,
          .read = read,
          .codes = codes,
          .scales = {256, groups},
          .cuda = groups == 4 ? CudaReader::triton_hopper : CudaReader::none};
}

constexpr KernelFormat humming(const char* name, int64_t columns, ReadBlock* read, CudaReader cuda = CudaReader::none) {
  return {.name = name,
          .rows = 16,
          .columns = columns,
          .read = read,
          .codes = {256, 128},
          .scales = {256, 4},
          .bias = BiasForm::bf16_mma,
          .bias_rows = 256,
          .cuda = cuda};
}

/// AITER's Triton kernel, which fuses the activation and therefore reads gate and up rows in pairs for every model.
constexpr KernelFormat aiter_triton(const char* name, int64_t rows, int64_t columns, ReadBlock* read) {
  return {.name = name, .rows = rows, .columns = columns, .read = read, .w13 = W13Order{1, false}};
}

constexpr KernelFormat all[] = {
    {.name = "marlin",
     .rows = 64,
     .columns = 16,
     .read = read_marlin,
     .bias = BiasForm::bf16_mma,
     .cuda = CudaReader::marlin},
    {.name = "marlin-fp8", .rows = 32, .columns = 32, .read = read_marlin_fp8, .bias = BiasForm::bf16_mma},
    humming("humming", 16, read_humming, CudaReader::humming),
    humming("humming-wgmma", 16, read_humming_wgmma, CudaReader::humming_wgmma),
    rewritten(humming("humming-w4a8", 32, read_humming_fp8)),
    flashinfer("flashinfer-sm90-v1", 64, read_sm90_v1, CudaReader::flashinfer_v1),
    flashinfer("flashinfer-sm90-v2", 64, read_sm90_v2, CudaReader::flashinfer_v2),
    rewritten(flashinfer("flashinfer-humming", 64, read_sm90_fp4fp8)),
    flashinfer_humming_64(),
    flashinfer("flashinfer-cutlass-sm100", 128, read_sm100),
    cutlass_mxfp4(),
    cutedsl(),
    {.name = "flashinfer-trtllm",
     .rows = 128,
     .columns = 128,
     .read = read_trtllm,
     .bias = BiasForm::f32_shuffled,
     .w13 = W13Order{1, true}},
    triton_hopper("triton-hopper-a", read_triton_hopper_a, a),
    triton_hopper("triton-hopper-b", read_triton_hopper_b, b),
    triton_hopper("triton-hopper-b-pairs", read_triton_hopper_b_pairs, b, 2),
    triton_hopper("triton-hopper-c", read_triton_hopper_b, c),
    {.name = "triton-blackwell",
     .rows = 32,
     .columns = 32,
     .read = read_triton_blackwell,
     .codes = {1, 256},
     .scales = {128, 8}},
    {.name = "deepgemm", .rows = 32, .columns = 32, .read = read_deepgemm, .scales = {4, 4}, .w13 = gate_up},
    {.name = "deepgemm-mega", .rows = 128, .columns = 128, .read = read_deepgemm_mega, .w13 = W13Order{8, false}},
    {.name = "aiter-a16w4",
     .rows = 32,
     .columns = 256,
     .read = read_aiter,
     .bias_in_halves = true,
     .w13 = W13Order{16, false}},
    {.name = "aiter-w4a4", .rows = 32, .columns = 256, .read = read_aiter, .w13 = gate_up},
    {.name = "aiter-w4a4-loaded", .rows = 32, .columns = 256, .read = read_aiter},
    {.name = "triton-cdna4", .rows = 32, .columns = 256, .read = read_triton_cdna4},
    {.name = "triton-rocm", .rows = 1, .columns = 32, .read = read_triton_rocm},
    aiter_triton("aiter-triton-cdna4", 32, 256, read_triton_cdna4),
    aiter_triton("aiter-triton", 1, 32, read_triton_rocm),
    aiter_triton("aiter-triton-strided", 1, 32, read_canonical),
    {.name = "vllm-cpu", .rows = 32, .columns = 32, .read = read_vllm_cpu},
    {.name = "canonical", .rows = 1, .columns = 32, .read = read_canonical},
    {.name = "canonical-bf16", .rows = 1, .columns = 32, .read = read_canonical, .bias = BiasForm::bf16},
};

}  // namespace

int64_t KernelFormat::code_bytes(int64_t n, int64_t k) const {
  return round_up(n, codes.rows) * round_up(k, codes.columns) / 2;
}
int64_t KernelFormat::scale_bytes(int64_t n, int64_t k) const {
  return round_up(n, scales.rows) * round_up(k / 32, scales.columns);
}

int64_t KernelFormat::bias_bytes(int64_t n) const { return round_up(n, bias_rows) * bias_element_bytes(bias); }

std::span<const KernelFormat> kernel_formats() { return all; }

const KernelFormat& kernel_format(std::string_view name) {
  for (const KernelFormat& format : all)
    if (format.name == name) return format;
  throw std::out_of_range("no kernel format is called " + std::string(name));
}

int64_t bias_element_bytes(BiasForm form) { return form == BiasForm::bf16 || form == BiasForm::bf16_mma ? 2 : 4; }

/// bf16_mma: a lane i of the accumulator reads 8 elements of 32 at once: rows 2i and 2i + 1 of each 8.
/// f32_shuffled: as the rows of trtllm-gen; row q of 32 is at 8(q % 4) + q / 4.
float read_bias(BiasForm form, const uint8_t* bias, int64_t n) {
  const int64_t block = n / 32 * 32, q = n % 32;
  int64_t at = n;
  if (form == BiasForm::bf16_mma) at = block + q % 8 / 2 * 8 + q / 8 * 2 + q % 2;
  if (form == BiasForm::f32_shuffled) at = block + q % 4 * 8 + q / 4;
  if (bias_element_bytes(form) == 4) return std::bit_cast<float>(word(bias + 4 * at));
  return std::bit_cast<float>(uint32_t(bias[2 * at]) << 16 | uint32_t(bias[2 * at + 1]) << 24);
}

}  // namespace mxfp4
