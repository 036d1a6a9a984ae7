#include "kernels/moe/moe_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace mxfp4 {

Comparison compare(std::span<const double> reference, std::span<const float> got, double tolerance) {
  if (reference.size() != got.size()) throw std::invalid_argument("results of different sizes");
  Comparison c;
  c.tolerance = tolerance;
  double difference = 0, reference2 = 0, got2 = 0, product = 0;
  bool finite = true;
  for (size_t i = 0; i < got.size(); ++i) {
    const double r = reference[i], g = got[i], d = g - r;
    c.not_finite += !std::isfinite(g);
    if (!std::isfinite(d)) {
      finite = false;
      continue;
    }
    c.max_abs = std::max(c.max_abs, std::abs(d));
    difference += d * d;
    reference2 += r * r;
    got2 += g * g;
    product += r * g;
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (difference > 0) c.relative_l2 = reference2 > 0 ? std::sqrt(difference / reference2) : infinity;
  if (reference2 > 0 || got2 > 0) c.cosine = product > 0 || product < 0 ? product / std::sqrt(reference2 * got2) : 0;
  if (!finite) c.relative_l2 = c.max_abs = infinity;
  return c;
}

}  // namespace mxfp4
