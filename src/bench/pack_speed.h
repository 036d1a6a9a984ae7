// How fast matrices are packed and unpacked in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/pack/device.h"

namespace mxfp4 {

/// Bytes of input per second, all threads together: of memcpy over the same bytes, of packing, of unpacking.
struct PackSpeed {
  std::string layout, driver;
  int threads = 1;
  double copy = 0, pack = 0, unpack = 0;
};

using OpenDevice = std::function<std::unique_ptr<Device>()>;

/// A packer and its name in results (`driver`).
struct Packer {
  std::string name;
  OpenDevice open;
};

/// Each thread works on more bytes than a cache holds. Medians of `repeats`, which are interleaved so that a busy
/// machine slows all alike.
std::vector<PackSpeed> pack_speeds(const std::vector<Layout>& layouts, const std::vector<Packer>& packers,
                                   const std::vector<int>& threads, int repeats);

/// XXH3 bytes per second of `threads` threads together.
double hash_speed(int threads);

double median(std::vector<double> values);

}  // namespace mxfp4
