// merge: the parts of an output, put together.
#pragma once

#include <span>
#include <string>

#include "src/base/json.h"
#include "src/device/device_choice.h"

namespace mxfp4 {

struct MergeOptions {
  std::string out;
  std::string source = {};  // the output that `out` was unpacked from; empty: what its parts say
  bool verify = false;      // reads every byte again; what is not as it was written is made anew
  int threads = 0;
  DeviceOptions device;
  bool json = false;
};

/// Numbers as `sbatch --array` takes them: "3,17-18".
std::string array_expression(std::span<const int> numbers);

/// Ends in OUT, as convert would have made it, and then changes nothing when called again. Returns what convert does,
/// or, and then nothing was done, an object with `missing`: the numbers of the parts that are not there, or with
/// `unchanged`: there are no parts, and OUT is an output whose files are there as they were written, or the checkpoint
/// that the source was made from; its tensors are not read.
Json merge(const MergeOptions& options);

/// The object for parts that are not there.
Json missing_parts(const std::string& out, int parts, std::span<const int> missing);

}  // namespace mxfp4
