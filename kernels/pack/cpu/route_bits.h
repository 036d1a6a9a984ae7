// The search for a route. Bits of a block change places step by step, from the input's to the output's. route.cpp makes
// a Route of the result.
#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/pack/cpu/lane_moves.h"
#include "kernels/pack/cpu/numbers.h"
#include "kernels/pack/cpu/route.h"

namespace mxfp4 {

inline constexpr int enough_bytes = 2048;  // of a block: more are not faster
inline constexpr size_t line_bits = 7;     // of a nibble's number in a line of the cache

/// How far the bits of a block move on one side in memory. bytes: of a piece, which is no longer than a vector; 0 if
/// bytes are split.
struct RouteSteps {
  int bytes = 0;
  std::vector<int64_t> piece, slot;
};

/// The places of the block's bits, from the input through each step to the output.
class RouteBits {
 public:
  RouteBits(const std::vector<Bit>& all, const Ids& read, const Ids& written, VectorForm form)
      : all_(all), read_(read), written_(written), form_(form), most_slots_(size_t(form.slots)) {}

  /// Chooses the block, and places its bits as they are read. Returns false if the strip has too few bits.
  bool place() {
    const Ids from = line(&Bit::from), to = line(&Bit::to);
    for (const Ids& ids : {from, to, read_})
      for (const int id : ids)
        if (!has(block_, id) && !has(written_, id)) block_.push_back(id);
    const auto lanes = size_t(form_.lane_bits) + 1;
    lane_.assign(from.begin(), from.begin() + int64_t(std::min(lanes, from.size())));
    wanted_.assign(to.begin(), to.begin() + int64_t(std::min(lanes, to.size())));
    const auto fill = [&](Ids& ids, const Ids& others) {
      while (ids.size() < lanes)
        if (!take(ids, [&](int id) { return has(others, id); }) && !take(ids, [](int) { return true; })) return false;
      return true;
    };
    if (!fill(lane_, wanted_) || !fill(wanted_, lane_)) return false;
    for (const int id : block_)
      if (!has(lane_, id)) slot_.push_back(id);
    while (slot_.size() < std::max<size_t>(read_.size(), 1))
      if (!take(slot_, [&](int id) { return !has(block_, id); })) return false;
    while (bytes() < enough_bytes && take(slot_, [&](int id) { return !has(block_, id); })) continue;
    loaded_ = slot_;
    return bytes() <= Route::most_bytes;
  }

  int bytes() const { return 1 << (std::min<size_t>(block_.size(), 30) - 1); }
  const Ids& block() const { return block_; }

  /// Moves bits until lanes are as they are written. mix: mixes planes on the way. After it the bits that number a
  /// unit's output bytes are at the places of those of its input bytes.
  void bring_lanes(std::optional<Route::Step> mix) {
    Ids lanes = lane_;
    for (int& id : lanes)
      if (const auto at = std::find(read_.begin(), read_.end(), id); at != read_.end())
        id = written_[size_t(at - read_.begin())];
    size_t last = 0;
    for (const LaneMove& m : find_moves({lanes, wanted_, written_, mix.has_value(), slot_.size()}, form_)) {
      if (m.code == Route::mix_1) {
        mix_planes(std::move(*mix));
      } else if (m.code == Route::sort) {
        sort_lanes();
      } else {
        if (m.id >= 0 || has(wanted_, slot_[last]) || has(read_, slot_[last]))
          last = find_slot([&](int id) { return m.id < 0 ? !has(wanted_, id) && !has(read_, id) : id == m.id; });
        Move& move = moves_.emplace_back();
        move.step.code = m.code + m.lane * Route::most_slots;
        move.slots = {int(last)};
        slot_[last] = move_lanes(lane_, {m.code, m.lane, slot_[last]});
      }
    }
  }

  /// The moves in passes, each with as many as fit into a group. `from` are the steps of the first pass's reads, `to`
  /// of the last pass's writes.
  std::vector<Route::Pass> passes(const RouteSteps& from, const RouteSteps& to) const {
    std::vector<Route::Pass> out;
    std::vector<std::vector<Move>> parts(1);
    Ids slots;
    for (const Move& move : moves_) {
      Ids both = slots;
      for (const int slot : move.slots)
        if (!has(both, slot)) both.push_back(slot);
      if (both.size() > most_slots_) {
        parts.emplace_back();
        both = move.slots;
      }
      parts.back().push_back(move);
      slots = std::move(both);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      const Ids slots = group_slots(parts[i], last ? slot_ : loaded_, last ? &Bit::to : &Bit::from);
      out.push_back(pass(parts[i], slots));
      out.back().from = places(slots, i == 0 ? from : inner());
      out.back().to = places(slots, last ? to : inner());
    }
    return out;
  }

  /// The steps in memory, as bits are placed now.
  RouteSteps steps(int64_t Bit::*side) const {
    RouteSteps out;
    const auto step = [&](int id) { return all_[size_t(id)].*side; };
    if (step(lane_[0]) != 1) return out;
    size_t i = 1;
    for (out.bytes = 1; i < lane_.size() && step(lane_[i]) == out.bytes * 2; ++i) out.bytes *= 2;
    for (; i < lane_.size(); ++i) out.piece.push_back(step(lane_[i]) / 2);
    for (const int id : slot_) out.slot.push_back(step(id) / 2);
    return out;
  }
  /// The steps of a buffer, where vectors follow one another.
  RouteSteps inner() const {
    RouteSteps out{form_.bytes(), {}, {}};
    for (size_t i = 0; i < slot_.size(); ++i) out.slot.push_back(int64_t(form_.bytes()) << i);
    return out;
  }

 private:
  /// A step and the slots that it needs, before it is known which ones a group has.
  struct Move {
    Route::Step step{};
    Ids slots = {};
  };

  /// The bits that move 1, 2, 4, .. nibbles, up to a line.
  Ids line(int64_t Bit::*side) const {
    Ids found;
    for (int64_t step = 1; found.size() < line_bits; step *= 2) {
      const auto at = std::find_if(all_.begin(), all_.end(), [&](const Bit& b) { return b.*side == step; });
      if (at == all_.end()) break;
      found.push_back(int(at - all_.begin()));
    }
    return found;
  }

  /// Adds to `ids` a bit that both sides have and that `fits`; a bit of the block is preferred. Returns false if there
  /// is none.
  template <class Fits>
  bool take(Ids& ids, Fits fits) {
    Ids all = block_;
    for (int id = 0; id < int(all_.size()); ++id)
      if (!has(block_, id)) all.push_back(id);
    const auto at = std::find_if(all.begin(), all.end(), [&](int id) {
      return all_[size_t(id)].from > 0 && all_[size_t(id)].to > 0 && !has(ids, id) && fits(id);
    });
    if (at == all.end()) return false;
    ids.push_back(*at);
    if (!has(block_, *at)) block_.push_back(*at);
    return true;
  }

  template <class Fits>
  size_t find_slot(Fits fits) const {
    return size_t(std::find_if(slot_.begin(), slot_.end(), fits) - slot_.begin());
  }

  void mix_planes(Route::Step step) {
    Move move{std::move(step)};
    for (size_t i = 0; i < read_.size(); ++i) {
      const size_t slot = find_slot([&](int id) { return id == read_[i]; });
      move.slots.push_back(int(slot));
      slot_[slot] = written_[i];
    }
    moves_.push_back(std::move(move));
  }

  void sort_lanes() {
    const size_t top = lane_.size() - 1;
    if (form_.swaps() && lane_[top] != wanted_[top]) {
      Ids below = lane_;
      std::swap(*std::find(below.begin(), below.end(), wanted_[top]), below[top - 1]);
      sort(below);
      std::swap(lane_[top], lane_[top - 1]);
      moves_.emplace_back().step.code = Route::swap;
    }
    sort(wanted_);
  }

  void sort(const Ids& lanes) {
    if (lane_ == lanes) return;
    Move& move = moves_.emplace_back();
    move.step.code = Route::sort;
    for (size_t i = 0; i < 64; ++i)
      for (size_t k = 1; k < lane_.size(); ++k) {
        const auto now = std::find(lanes.begin(), lanes.end(), lane_[k]) - lanes.begin() - 1;
        move.step.index[i] = uint8_t(move.step.index[i] | (i >> now & 1) << (k - 1));
      }
    lane_ = lanes;
  }

  /// The slots of the groups of a pass with these moves. Slots that no move needs are the nearest in memory on `side`.
  /// The nearest is the last, because run_route.h stores vectors that differ in it one after another. `ids` are the
  /// bits in the slots there.
  Ids group_slots(const std::vector<Move>& moves, const Ids& ids, int64_t Bit::*side) const {
    Ids slots, others(slot_.size());
    const auto add = [&](const Ids& more) {
      for (const int slot : more)
        if (slots.size() < most_slots_ && !has(slots, slot)) slots.push_back(slot);
    };
    for (const Move& move : moves)
      if (move.step.code >= Route::mix_1) add(move.slots);  // planes are told apart by the lowest bits
    const auto planes = int64_t(slots.size());
    for (const Move& move : moves) add(move.slots);
    std::iota(others.begin(), others.end(), 0);
    const auto step = [&](int slot) { return all_[size_t(ids[size_t(slot)])].*side; };
    std::sort(others.begin(), others.end(), [&](int a, int b) { return step(a) < step(b); });
    add(others);
    const auto nearest = std::find(slots.begin() + planes, slots.end(), others.empty() ? 0 : others[0]);
    if (nearest != slots.end()) std::rotate(nearest, nearest + 1, slots.end());
    return slots;
  }

  static Route::Pass pass(const std::vector<Move>& moves, const Ids& slots) {
    Route::Pass out;
    out.slots = int(slots.size());
    for (const Move& move : moves) {
      out.steps.push_back(move.step);
      if (move.step.code < Route::sort)
        out.steps.back().code += int(std::find(slots.begin(), slots.end(), move.slots[0]) - slots.begin());
    }
    return out;
  }

  Route::Places places(const Ids& slots, const RouteSteps& steps) const {
    Route::Places out;
    out.pieces = form_.bytes() / steps.bytes;
    std::copy(steps.piece.begin(), steps.piece.end(), out.piece.begin());
    for (size_t i = 0; i < slots.size(); ++i) out.slot[i] = steps.slot[size_t(slots[i])];
    std::vector<int64_t> others;
    for (int slot = 0; slot < int(slot_.size()); ++slot)
      if (!has(slots, slot)) others.push_back(steps.slot[size_t(slot)]);
    out.groups = sums_of(others);
    return out;
  }

  const std::vector<Bit>& all_;
  const Ids read_, written_;
  const VectorForm form_;
  const size_t most_slots_;  // of a group
  Ids block_, lane_, slot_;
  Ids wanted_, loaded_;  // the lanes of the written vectors, and the slots of those that are read
  std::vector<Move> moves_;
};

}  // namespace mxfp4
