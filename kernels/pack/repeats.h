// Pads that repeat source values (ModeLayout::repeats), in staged rows.
#pragma once

#include <vector>

#include "kernels/layouts/matrix.h"
#include "kernels/layouts/modes.h"

namespace mxfp4 {

/// Rows n to end of the storage, of `bytes` each, that are in memory.
struct Staged {
  int64_t n, end, bytes;
};

/// Writes the repeated values of the staged rows.
void fill_repeats(const std::vector<Repeat>& repeats, const Matrix& m, Staged s, uint8_t* rows);
/// Writes the matrix's pads in their places. T is that of Matrix or MutableMatrix, here and below.
template <class T>
void clear_repeats(const std::vector<Repeat>& repeats, const BasicMatrix<T>& m, Staged s, uint8_t* rows);
/// Counts the bytes that differ from the values that they should repeat.
template <class T>
void compare_repeats(const std::vector<Repeat>& repeats, const BasicMatrix<T>& m, Staged s, const uint8_t* rows,
                     PadReport& report);

}  // namespace mxfp4
