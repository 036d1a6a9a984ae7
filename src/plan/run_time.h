// How long a conversion is expected to take.
#pragma once

namespace mxfp4 {

/// Seconds that a conversion takes of the disk and of the processor, which work at once.
struct RunTime {
  double disk = 0, processor = 0;
  double total() const { return disk > processor ? disk : processor; }
  const char* bound() const { return disk > processor ? "disk" : "processor"; }
};

}  // namespace mxfp4
