// What a conversion takes of this machine.
#pragma once

#include <string>

#include "src/bench/disk_speed.h"
#include "src/plan/run_time.h"

namespace mxfp4 {

struct Plan;

/// Bytes per second, all threads together.
struct Rates {
  DiskSpeed disk;
  double pack = 0, hash = 0;
};

/// Of these bytes of a source, `packed` become packed tensors; `written` is the output.
struct Amounts {
  int64_t read = 0, packed = 0, written = 0;
};

RunTime predict(const Rates& rates, const Amounts& amounts);

/// For a dry run: measures this machine for a second or two, the disk by a file in `dir` that has no name there.
RunTime predict(const Plan& plan, const std::string& dir, int threads);

}  // namespace mxfp4
