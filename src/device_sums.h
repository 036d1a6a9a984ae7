// Checksums that are left to the device which packs; what it does not make is made here.
#pragma once

#include <vector>

#include "kernels/device.h"
#include "src/checksum.h"

namespace mxfp4 {

class DeviceSums {
 public:
  /// The hasher's pieces, which lie one after the other at `data`.
  void add(const PieceHasher& hasher, const uint8_t* data) {
    for (const HashedPiece& piece : hasher.pieces()) {
      wanted_.push_back({data, piece.bytes});
      to_.push_back(piece.to);
      data += piece.bytes;
    }
  }
  /// For Device::pack().
  std::span<Checksum> wanted() { return wanted_; }
  /// After it, while the bytes are there.
  void store() const {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const Checksum& sum = wanted_[i];
      *to_[i] = sum.made ? Hash{sum.low, sum.high} : hash_bytes(sum.data, sum.bytes);
    }
  }

 private:
  std::vector<Checksum> wanted_;
  std::vector<Hash*> to_;
};

}  // namespace mxfp4
