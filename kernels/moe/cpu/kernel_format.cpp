#include "kernels/moe/cpu/kernel_format.h"

#include <stdexcept>
#include <string>

#include "kernels/moe/cpu/readers.h"

namespace mxfp4 {

int64_t KernelFormat::code_bytes(int64_t n, int64_t k) const {
  return round_up(n, codes.rows) * round_up(k, codes.columns) / 2;
}
int64_t KernelFormat::scale_bytes(int64_t n, int64_t k) const {
  return round_up(n, scales.rows) * round_up(k / 32, scales.columns);
}

int64_t KernelFormat::bias_bytes(int64_t n) const { return round_up(n, bias_rows) * bias_element_bytes(bias); }

std::vector<const KernelFormat*> kernel_formats() {
  using namespace readers;
  std::vector<const KernelFormat*> all;
  for (const auto& list : {marlin_formats, humming_formats, hopper_formats, blackwell_formats, other_formats})
    for (const KernelFormat& format : list) all.push_back(&format);
  return all;
}

const KernelFormat& kernel_format(std::string_view name) {
  for (const KernelFormat* format : kernel_formats())
    if (format->name == name) return *format;
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
  if (bias_element_bytes(form) == 4) return std::bit_cast<float>(readers::word(bias + 4 * at));
  return std::bit_cast<float>(uint32_t(bias[2 * at]) << 16 | uint32_t(bias[2 * at + 1]) << 24);
}

}  // namespace mxfp4
