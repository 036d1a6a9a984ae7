// Prints differences.
#pragma once

#include <string>
#include <vector>

namespace mxfp4 {

struct Difference {
  std::string line;  // "TENSOR: what differs"
  std::string name;  // the tensor; empty if the line is about no tensor
  std::string fact;  // the part of the line that several layers may share
};

/// Prints lines to stdout. Tensors whose names differ only in numbers, and whose `fact` is the same, share one line
/// with their count. With -v every line is printed.
void print_differences(const std::vector<Difference>& differences);

}  // namespace mxfp4
