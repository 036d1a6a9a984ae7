// A kernel's result against the reference's.
#pragma once

#include <cstdint>
#include <span>

namespace mxfp4 {

struct Comparison {
  double relative_l2 = 0;  // |got - reference| / |reference|, infinite if one of them is not finite
  double max_abs = 0;      // largest |got - reference|
  double cosine = 1;
  int64_t not_finite = 0;  // NaN and Inf in got
  double tolerance = 0;
  bool right() const { return relative_l2 <= tolerance; }
};

Comparison compare(std::span<const double> reference, std::span<const float> got, double tolerance);

}  // namespace mxfp4
