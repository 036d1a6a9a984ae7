// How a group's words are made of source bytes: lanes, planes and turns (block_plan.h).
#pragma once

#include <vector>

#include "kernels/pack/cuda/block_plan.h"
#include "kernels/pack/cuda/plan_digits.h"

namespace mxfp4 {

using TurnList = std::vector<Turn>;

/// The list's turn of this kind, which is added if there is none.
Turn& turn_of(TurnList& list, uint32_t by);

/// Adds the next list. Throws DeviceError if there are too many turns.
void add_list(const TurnList& list, Turns& to);

/// The OR of the bases of groups in bytes, and whether some are in the middle of a byte.
struct BaseBits {
  int64_t bytes = 0;
  bool nibbles = false;
};

/// bits: the place in shared memory of each bit of a group, from the group's base. unit_bits: the last copy of a bit
/// within them is read. Sets form, piece, lanes, is_repeated, offset and the turns to pack.
void find_words(const std::vector<int64_t>& bits, int64_t unit_bits, BaseBits bases, BlockPlan& plan);

/// Replaces the form of groups of 16 bytes by a planar one, if there is one. bits: as above. Returns the digits that
/// part and offset cover, so that they count no groups.
std::vector<const PlanDigit*> find_planes(const std::vector<int64_t>& bits,
                                          const std::vector<const PlanDigit*>& in_group,
                                          const std::vector<const PlanDigit*>& of_groups, BlockPlan& plan);

}  // namespace mxfp4
