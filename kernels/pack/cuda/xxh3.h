// XXH3-128 (seed 0, default secret) of bytes in device memory, as libxxhash's XXH3_128bits() makes it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

namespace mxfp4 {

struct Xxh128 {
  uint64_t low, high;
};

/// data: in device memory, at a multiple of 16. bytes: above 240; shorter inputs have formulas of their own.
struct XxhItem {
  const uint8_t* data;
  int64_t bytes;
  Xxh128* to;  // in device or page-locked memory, which a kernel can write
};
inline bool can_hash(const uint8_t* data, int64_t bytes) {
  return bytes > 240 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

/// Bytes of device memory that launch_xxh3 needs for an item: 64 bytes for each 1024 except the last. The parts of an
/// item need no more than the whole.
constexpr int64_t xxh_scratch(int64_t bytes) { return (bytes - 1) / 1024 * 64; }

/// scratch: the items' together, at a multiple of 8. Asynchronous.
void launch_xxh3(std::span<const XxhItem> items, uint8_t* scratch, cudaStream_t stream);

}  // namespace mxfp4
