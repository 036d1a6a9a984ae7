// merge: combines the parts of an output.
#pragma once

#include <span>
#include <string>

#include "src/base/json.h"
#include "src/device/device_choice.h"

namespace mxfp4 {

struct MergeOptions {
  std::string out;
  bool verify = false;  // reads every byte again and makes damaged files again
  int threads = 0;
  DeviceOptions device;
  bool json = false;
};

/// Numbers in the syntax of `sbatch --array`: "3,17-18".
std::string array_expression(std::span<const int> numbers);

/// Makes OUT as convert would have made it. Another call changes nothing. Returns the result of convert. If nothing was
/// done, returns an object with one of these keys. `missing`: the numbers of missing parts. `unchanged`: there are no
/// parts, and OUT has all files of an output. Tensors are not read.
Json merge(const MergeOptions& options);

/// The object for missing parts.
Json missing_parts(const std::string& out, int parts, std::span<const int> missing);

}  // namespace mxfp4
