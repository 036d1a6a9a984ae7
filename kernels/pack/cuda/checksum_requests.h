// Maps the checksums that a caller requests for host memory to the copies of that memory on the device.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/pack/cuda/xxh3.h"
#include "kernels/pack/device.h"

namespace mxfp4 {

class ChecksumRequests {
 public:
  /// to: device memory for one checksum per entry of `sums`.
  ChecksumRequests(std::span<Checksum> sums, Xxh128* to) : to_(to), sums_(sums), by_address_(sums.size()) {
    std::iota(by_address_.begin(), by_address_.end(), size_t(0));
    std::sort(by_address_.begin(), by_address_.end(), [&](size_t a, size_t b) { return sums[a].data < sums[b].data; });
  }
  /// Adds to `items` the checksums of data in host memory [host, host + bytes), whose copy is at `device`, and marks
  /// them done.
  void find(const uint8_t* host, const uint8_t* device, int64_t bytes, std::vector<XxhItem>& items) {
    auto next = std::lower_bound(by_address_.begin(), by_address_.end(), host,
                                 [&](size_t i, const uint8_t* at) { return sums_[i].data < at; });
    for (; next != by_address_.end() && sums_[*next].data + sums_[*next].bytes <= host + bytes; ++next) {
      Checksum& sum = sums_[*next];
      const uint8_t* const data = device + (sum.data - host);
      if (!can_hash(data, sum.bytes)) continue;
      items.push_back({data, sum.bytes, to_ + *next});
      sum.done = true;
    }
  }

 private:
  Xxh128* to_;
  std::span<Checksum> sums_;
  std::vector<size_t> by_address_;
};

}  // namespace mxfp4
