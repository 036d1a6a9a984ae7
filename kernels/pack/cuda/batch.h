// The input of one launch of a pack or unpack kernel: items of one layout that differ only in their addresses.
#pragma once

#include <cstdint>

#include "kernels/layouts/matrix.h"

namespace mxfp4 {

/// The number of wrong bytes, and the first: pads of one item, copies, or bytes of one view that differ from the
/// expected bytes. All zeros: none is wrong.
struct PadFound {
  unsigned long long wrong;
  unsigned long long first;  // the complement of (position << 16 | is << 8 | expected), the greatest there is
};

/// A kernel parameter: no copy to the device precedes a launch. All pointers are the device's.
/// Rows must be readable up to the next multiple of 8 bytes; packed matrices begin at multiples of 16.
struct Batch {
  static constexpr int max_items = 256;
  struct Item {
    uint8_t* view[2];
    uint8_t* packed;
    PadFound* found;  // not for packing; their number depends on the kernel
  };
  MutableMatrix matrix;  // of every item; its view[].data are not used
  Shape storage;
  Item items[max_items];
};

}  // namespace mxfp4
