// The mistakes that conversions and engines are known to make with MXFP4 experts.
#pragma once

#include <string>
#include <vector>

#include "kernels/moe/check/moe_diagnose.h"

namespace mxfp4 {

/// A change to the input of the reference: how it reads the rows, or the layer itself.
struct Mistake {
  std::string name;
  Reading reading;
  void (*change)(MoeCase& layer) = nullptr;
};

/// The mistakes that are possible for the layer: no bias mistakes without biases, for example.
std::vector<Mistake> likely_mistakes(const MoeCase& layer);

}  // namespace mxfp4
