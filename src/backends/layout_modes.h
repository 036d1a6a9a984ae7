// Modes and repeated pads of a layout file.
#pragma once

#include <functional>
#include <vector>

#include "kernels/layouts/matrix.h"
#include "kernels/layouts/modes.h"
#include "src/checkpoint/field.h"

namespace mxfp4 {

/// A whole number of that range.
int64_t number(const Field& f, int64_t least, int64_t most);
/// Every entry of a list of `least` to `most`.
void each(const Field& list, int64_t least, int64_t most, const std::function<void(const Field&)>& use);

Modes read_modes(const Field& list);
/// The pads that repeat source values. matrix: the sizes and the row order.
std::vector<Repeat> read_repeats(const Field& list, const Matrix& matrix, Shape storage);

}  // namespace mxfp4
