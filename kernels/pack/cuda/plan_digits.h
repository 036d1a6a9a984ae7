// The digits of a layout by modes, and which of them a block of the GPU has (block_plan.h).
#pragma once

#include <vector>

#include "kernels/layouts/matrix.h"
#include "kernels/layouts/modes.h"

namespace mxfp4 {

/// A digit of the source bits that a digit of stored bits moves.
struct PlanPart {
  Mode mode;
  bool in_run = false;  // of a block: counts bits within a slot; else it counts slots
  int64_t shared = 0;   // bits in shared memory from slot to slot

  /// The bits by which a part that stays in its rows moves, if its values move by multiples of that in some order;
  /// else 0.
  int64_t column_step() const;
  /// The place in shared memory of a value, in bits.
  int64_t shared_at(int64_t d) const { return in_run ? mode.at(d).bit : d * shared; }
};

/// One digit of a stored bit's number.
struct PlanDigit {
  Mode mode;
  int64_t weight = 1;           // in stored bits
  std::vector<PlanPart> parts;  // of a short list of steps: the digits of the same steps in order; else one
  std::vector<int64_t> rank;    // of a short list of steps: of each value in order
  int64_t inner = 0;            // the values that a block has: 0, all, or a divisor of their number

  PlanDigit(Mode mode, int64_t weight);
  int64_t count() const { return mode.count; }
  bool in_block() const { return inner > 0; }
  bool is_copy() const { return mode.moves_nothing(); }
  /// That of the only part; else 0.
  int64_t column_step() const { return parts.size() == 1 ? parts[0].column_step() : 0; }
  /// How far in the source the digit moves least.
  int64_t least_move(int64_t row_bits) const;
  /// The place in shared memory of a value, in bits.
  int64_t shared_at(int64_t d) const;
};

/// Throws DeviceError: a GPU cannot pack the layout.
[[noreturn]] void refuse_layout();

/// half: the rows from gate's to up's, if the rows are in two halves; a digit of 2 is split off there, if possible.
std::vector<PlanDigit> split_digits(const Modes& modes, int64_t half);

/// The bytes of a group: the largest of 16, 4 and 1 that the first digits count, and the number of these digits.
/// unit_bits: copies that begin beyond are not of the group. Throws DeviceError if there is none.
struct GroupSize {
  int bytes;
  size_t digits;
};
GroupSize group_size(const std::vector<PlanDigit>& digits, int64_t unit_bits);

/// Sets inner and in_run. Returns bits of a slot. Throws DeviceError if slots are no whole bytes.
/// has_links: slots may share chunks of 16 bytes in global memory, so that a block should have whole rows.
/// half: as above, if gate and up rows alternate in memory and are narrow; then a block should have both. Else 0.
int64_t choose_block(std::vector<PlanDigit>& digits, size_t in_group, bool has_links, int64_t half);

}  // namespace mxfp4
