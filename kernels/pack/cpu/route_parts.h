// What find_route.cpp finds a route with.
#pragma once

#include <algorithm>

#include "kernels/pack/cpu/route.h"

namespace mxfp4 {

using Ids = std::vector<int>;  // of bits: their places in a list of all
inline bool has(const Ids& ids, int id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

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

/// The cheapest moves.
std::vector<LaneMove> find_moves(const LaneTask& task, const VectorForm& form);

/// Moves the bits of lanes; returns the bit that leaves them.
int move_lanes(Ids& lanes, LaneMove move);

/// The steps that mix the planes of units in the way of a driver's form: bit `from` of all planes becomes bit `to`. An
/// exchange of nibbles may come first or last; its slot is a bit of the plane's number.
std::vector<Route::Step> mixed(const List& mixing, int planes, Mixing how);

}  // namespace mxfp4
