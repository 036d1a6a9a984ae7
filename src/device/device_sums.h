// Checksums that the packing device computes; the CPU computes those that the device leaves out.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/pack/device.h"
#include "src/base/checksum.h"

namespace mxfp4 {

class DeviceSums {
 public:
  /// The hasher's pieces, of which number i lies at at(i).
  template <class At>
  void add(const PieceHasher& hasher, At at) {
    for (size_t i = 0; i < hasher.pieces().size(); ++i) {
      wanted_.push_back({at(i), hasher.pieces()[i].bytes});
      to_.push_back(hasher.pieces()[i].to);
    }
  }
  /// For Device::pack().
  std::span<Checksum> wanted() { return wanted_; }
  /// After it: whether the device made all.
  bool are_made() const {
    return std::all_of(wanted_.begin(), wanted_.end(), [](const Checksum& sum) { return sum.done; });
  }
  /// After it, while the bytes are there.
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
