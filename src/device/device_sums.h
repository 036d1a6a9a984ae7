// Checksums that the packing device computes; the CPU computes those that the device leaves out.
#pragma once

#include <vector>

#include "kernels/pack/device.h"
#include "src/base/checksum.h"

namespace mxfp4 {

class DeviceSums {
 public:
  /// Adds the chunks of a hasher; the bytes of chunk i are at at(i).
  template <class At>
  void add(const PieceHasher& hasher, At at) {
    for (size_t i = 0; i < hasher.pieces().size(); ++i) {
      wanted_.push_back({at(i), hasher.pieces()[i].bytes});
      to_.push_back(hasher.pieces()[i].to);
    }
  }
  /// The checksums to compute, for Device::pack().
  std::span<Checksum> wanted() { return wanted_; }
  /// Stores all checksums after Device::pack(), while the bytes are still in memory.
  void store() const {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const Checksum& sum = wanted_[i];
      *to_[i] = sum.done ? Hash{sum.low, sum.high} : hash_bytes(sum.data, sum.bytes);
    }
  }

 private:
  std::vector<Checksum> wanted_;
  std::vector<Hash*> to_;
};

}  // namespace mxfp4
