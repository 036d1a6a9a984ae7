// What one launch of a pack or unpack kernel works on: items of one layout that differ in nothing but where they are.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"

namespace mxfp4 {

/// Pads of one item that are wrong; all zeros: none.
struct PadFound {
  unsigned long long wrong;
  unsigned long long first;  // the complement of (storage position << 16 | is << 8 | expected), the greatest there is
};

/// A kernel parameter: no copy to the device precedes a launch. All pointers are the device's.
/// Rows must be readable up to the next multiple of 8 bytes; packed matrices begin at multiples of 16.
struct Batch {
  static constexpr int max_items = 256;
  struct Item {
    uint8_t* view[2];
    uint8_t* packed;
    PadFound* found;  // unpack only
  };
  MutableMatrix matrix;  // of every item; its view[].data are not used
  Shape storage;
  Item items[max_items];
};

}  // namespace mxfp4
