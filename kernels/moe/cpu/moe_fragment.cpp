#include "kernels/moe/cpu/moe_fragment.h"

#include <algorithm>

namespace mxfp4 {
namespace {

using namespace fragment;

constexpr double exact = 1e-5;
constexpr const char* exact_reason = "weights exact, sums of float32 products";
// Codes whose scale lies more than 11 powers of two below the largest lose their last places.
constexpr double rewritten = 1e-3;
constexpr const char* rewritten_reason = "codes rewritten to a scale range of 11 powers of two";

constexpr W13Order gate_up{0, false}, up_gate{0, true};

int64_t hopper_scales(int64_t n, int64_t k, int64_t warps) { return up(n, 32 * warps) * up(k / 32, 4); }
int64_t hopper_scales_w8(int64_t n, int64_t k) { return hopper_scales(n, k, 8); }
int64_t hopper_scales_w4(int64_t n, int64_t k) { return hopper_scales(n, k, 4); }
int64_t hopper_codes_a(int64_t n, int64_t k) { return up(n, 16) * up(k, 64) / 2; }
int64_t hopper_codes_b(int64_t n, int64_t k) { return up(n, 64) * up(k, 128) / 2; }
int64_t hopper_codes_c(int64_t n, int64_t k) { return up(n, 256) * up(k, 128) / 2; }
int64_t blackwell_codes(int64_t n, int64_t k) { return n * up(k, 256) / 2; }
int64_t blackwell_scales(int64_t n, int64_t k) { return up(n, 128) * up(k / 32, 8); }
int64_t deepgemm_scales(int64_t n, int64_t k) { return up(n, 4) * up(k / 32, 4); }

// name, rows, columns, read, bytes of codes and scales, bias, in halves, w13 as loaded, w13, tolerance
constexpr Fragment all[] = {
    {"marlin", 64, 16, read_marlin, dense_codes, dense_scales, BiasForm::bf16_mma, false, true, gate_up, exact,
     exact_reason},
    {"marlin-fp8", 32, 32, read_marlin_fp8, dense_codes, dense_scales, BiasForm::bf16_mma, false, true, gate_up, exact,
     exact_reason},
    {"flashinfer-sm90-v1", 64, 128, read_sm90_v1, dense_codes, dense_scales, BiasForm::bf16, false, false, up_gate,
     exact, exact_reason},
    {"flashinfer-sm90-v2", 64, 128, read_sm90_v2, dense_codes, dense_scales, BiasForm::bf16, false, false, up_gate,
     exact, exact_reason},
    {"flashinfer-humming", 64, 128, read_sm90_fp4fp8, dense_codes, dense_scales, BiasForm::bf16, false, false, up_gate,
     rewritten, rewritten_reason},
    {"flashinfer-trtllm", 128, 128, read_trtllm, dense_codes, dense_scales, BiasForm::f32_shuffled, false, false,
     W13Order{1, true}, exact, exact_reason},
    {"flashinfer-cutlass-sm100", 128, 128, read_sm100, dense_codes, dense_scales, BiasForm::bf16, false, false, up_gate,
     exact, exact_reason},
    {"flashinfer-cutedsl", 128, 128, read_sm100, dense_codes, dense_scales, BiasForm::bf16, false, false,
     W13Order{64, true}, exact, exact_reason},
    {"triton-hopper-a", 16, 64, read_triton_hopper_a, hopper_codes_a, hopper_scales_w8, BiasForm::f32, false, true,
     gate_up, exact, exact_reason},
    {"triton-hopper-b", 16, 64, read_triton_hopper_b, hopper_codes_b, hopper_scales_w8, BiasForm::f32, false, true,
     gate_up, exact, exact_reason},
    {"triton-hopper-c", 16, 64, read_triton_hopper_b, hopper_codes_c, hopper_scales_w8, BiasForm::f32, false, true,
     gate_up, exact, exact_reason},
    {"triton-hopper-a-w4", 16, 64, read_triton_hopper_a_w4, hopper_codes_a, hopper_scales_w4, BiasForm::f32, false,
     true, gate_up, exact, exact_reason},
    {"triton-hopper-b-w4", 16, 64, read_triton_hopper_b_w4, hopper_codes_b, hopper_scales_w4, BiasForm::f32, false,
     true, gate_up, exact, exact_reason},
    {"triton-hopper-c-w4", 16, 64, read_triton_hopper_b_w4, hopper_codes_c, hopper_scales_w4, BiasForm::f32, false,
     true, gate_up, exact, exact_reason},
    {"triton-hopper-a-strided", 16, 64, read_triton_hopper_a_strided, hopper_codes_a, dense_scales, BiasForm::f32,
     false, true, gate_up, exact, exact_reason},
    {"triton-hopper-b-strided", 16, 64, read_triton_hopper_b_strided, hopper_codes_b, dense_scales, BiasForm::f32,
     false, true, gate_up, exact, exact_reason},
    {"triton-hopper-c-strided", 16, 64, read_triton_hopper_b_strided, hopper_codes_c, dense_scales, BiasForm::f32,
     false, true, gate_up, exact, exact_reason},
    {"triton-blackwell", 32, 32, read_triton_blackwell, blackwell_codes, blackwell_scales, BiasForm::f32, false, true,
     gate_up, exact, exact_reason},
    {"deepgemm", 32, 32, read_deepgemm, dense_codes, deepgemm_scales, BiasForm::f32, false, false, gate_up, exact,
     exact_reason},
    {"deepgemm-mega", 128, 128, read_deepgemm_mega, dense_codes, dense_scales, BiasForm::f32, false, false,
     W13Order{8, false}, exact, exact_reason},
    {"aiter-a16w4", 32, 256, read_aiter, dense_codes, dense_scales, BiasForm::f32, true, false, W13Order{16, false},
     exact, exact_reason},
    {"aiter-w4a4", 32, 256, read_aiter, dense_codes, dense_scales, BiasForm::f32, false, false, gate_up, exact,
     exact_reason},
    {"vllm-cpu", 32, 32, read_vllm_cpu, dense_codes, dense_scales, BiasForm::f32, false, true, gate_up, exact,
     exact_reason},
};

}  // namespace

std::span<const Fragment> fragments() { return all; }

const Fragment* find_fragment(std::string_view name) {
  const auto* found = std::find_if(std::begin(all), std::end(all), [&](const Fragment& f) { return f.name == name; });
  return found == std::end(all) ? nullptr : found;
}

int64_t bias_element_bytes(BiasForm form) { return form == BiasForm::bf16 || form == BiasForm::bf16_mma ? 2 : 4; }

/// bf16_mma: a lane i of the accumulator reads 8 elements of 32 at once: rows 2i and 2i + 1 of each 8.
/// f32_shuffled: as the rows of trtllm-gen; row q of 32 lies at 8(q % 4) + q / 4.
float read_bias(BiasForm form, const uint8_t* bias, int64_t n) {
  const int64_t block = n / 32 * 32, q = n % 32;
  int64_t at = n;
  if (form == BiasForm::bf16_mma) at = block + q % 8 / 2 * 8 + q / 8 * 2 + q % 2;
  if (form == BiasForm::f32_shuffled) at = block + q % 4 * 8 + q / 4;
  if (bias_element_bytes(form) == 4) return std::bit_cast<float>(word(bias + 4 * at));
  return std::bit_cast<float>(uint32_t(bias[2 * at]) << 16 | uint32_t(bias[2 * at + 1]) << 24);
}

}  // namespace mxfp4
