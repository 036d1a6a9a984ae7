// Staging: between a matrix as its owner has it (strided views, row order, pads) and the plain rows of the storage
// that a layout's drivers read and write.
#pragma once

#include "kernels/layouts/matrix.h"

namespace mxfp4 {

/// Rows n to `end` of the storage, s.b bytes each, at `to`: the views' bytes, then the pads, `add` applied.
void stage(const Matrix& m, Shape s, int64_t n, int64_t end, uint8_t* to);

/// Whether the bytes at `rows` equal the output of stage().
bool is_staged(const Matrix& m, Shape s, int64_t n, int64_t end, const uint8_t* rows);

/// The inverse: writes the real bytes to the views' rows and counts pads that differ from those of `m`.
void unstage(const MutableMatrix& m, Shape s, int64_t n, int64_t end, const uint8_t* from, PadReport& report);

}  // namespace mxfp4
