// How differences are printed.
#pragma once

#include <string>
#include <vector>

namespace mxfp4 {

/// Lines "TENSOR: what differs" on stdout. Those that say the same of several layers are one, and how many more there
/// are; with -v all are printed.
void print_differences(const std::vector<std::string>& lines);

}  // namespace mxfp4
