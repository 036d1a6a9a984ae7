// The change of values that Humming's W4A8 kernels on SM90 need before their layouts apply. It is the same in
// FlashInfer (from 0.6.18) and humming-kernels. The kernels have twelve scales per expert: a base 2^(base - 127) and
// its next eleven doublings. Groups with a smaller scale get the base, and their codes are divided to match. The change
// is lossy and has no inverse, so it is not a layout.
//
// Facts: preprocess_moe_weights_for_sm90_mixed_gemm_humming, byte-checked for scale ranges up to 138. For larger ranges
// FlashInfer's table overflows; here codes become 0. process_mxfp4_w4a8 of humming-kernels 0.1.19, compiled for the
// host.
#pragma once

#include <cstdint>
#include <span>

namespace mxfp4 {

struct RewriteLoss {
  float residual = 0;          // 2^(base - 127) / 2, the factor that the kernel applies to the whole expert
  int64_t groups = 0;          // of 32 codes
  int64_t groups_clamped = 0;  // whose scale was raised to the base
  int64_t codes_changed = 0;   // in clamped groups
  int64_t codes_rounded = 0;   // of those: code times scale has another value
  int64_t minus_zeros = 0;     // written as zero, in all groups
};

/// Rewrites one expert's whole matrix (w13: gate and up together) in place. codes: 16 bytes for each scale, in the same
/// order; empty: only the scales are rewritten. Scales become offsets from the base, 1 to 12.
RewriteLoss humming_rewrite(std::span<uint8_t> codes, std::span<uint8_t> scales);

}  // namespace mxfp4
