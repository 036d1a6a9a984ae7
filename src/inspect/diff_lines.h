// How differences are printed.
#pragma once

#include <string>
#include <vector>

namespace mxfp4 {

struct Difference {
  std::string line;  // "TENSOR: what differs"
  std::string name;  // the tensor; empty where it is of none
  std::string fact;  // what may be the same of several layers
};

/// Lines on stdout. Tensors whose names differ in numbers alone and of which the same is a fact have one line, and how
/// many more there are; with -v all are printed.
void print_differences(const std::vector<Difference>& differences);

}  // namespace mxfp4
