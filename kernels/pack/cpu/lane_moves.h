// The search for the cheapest moves of bits between lanes and slots (route.h).
#pragma once

#include "kernels/pack/cpu/numbers.h"
#include "kernels/pack/cpu/route.h"

namespace mxfp4 {

/// code: 0 (exchange), Route::zip or Route::unzip: bit `id` comes from its slot to the lane; -1: any bit that is not
/// wanted. Route::mix_1: the planes are mixed. Route::sort: the lanes are sorted.
struct LaneMove {
  int code, lane, id;
};

/// What moves must achieve: `lanes` become `wanted`. planes: bits that are in slots when planes are mixed, if they are.
struct LaneTask {
  Ids lanes, wanted, planes;
  bool mixes;
  size_t slots;  // their number
};

std::vector<LaneMove> find_moves(const LaneTask& task, const VectorForm& form);

/// Moves the bits of lanes; returns the bit that leaves them.
int move_lanes(Ids& lanes, LaneMove move);

}  // namespace mxfp4
