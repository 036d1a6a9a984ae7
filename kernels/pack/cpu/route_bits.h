// The search for a route. Bits of a block change places step by step, from the input's to the output's. route.cpp makes
// a Route of the result.
#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/pack/cpu/numbers.h"
#include "kernels/pack/cpu/route.h"

namespace mxfp4 {

inline constexpr int enough_bytes = 2048;   // of a block: more are not faster
inline constexpr int most_mixed_slots = 3;  // of a group whose planes are mixed: a mix needs registers, too
inline constexpr size_t line_bits = 7;      // of a nibble's number in a line of the cache

inline bool has(const Ids& ids, int id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

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
      : all_(all),
        read_(read),
        written_(written),
        form_(form),
        most_slots_(size_t(read.empty() ? form.slots : std::min(form.slots, most_mixed_slots))) {}

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

  /// Exchanges until the bits that number a unit's input bytes are in slots.
  void bring_planes() {
    for (size_t lane = 0; lane < lane_.size(); ++lane) {
      if (!has(read_, lane_[lane])) continue;
      size_t slot = find_slot([&](int id) { return id == wanted_[lane]; });
      if (slot == slot_.size()) slot = find_slot([&](int id) { return has(wanted_, id); });
      if (slot == slot_.size()) slot = find_slot([&](int id) { return !has(read_, id); });
      exchange(lane, slot);
    }
  }

  /// Mixes planes. Afterwards, the bits that number a unit's output bytes are at the places of those of its input
  /// bytes.
  void mix(std::vector<Route::Term> terms) {
    Move move;
    move.step.code = Route::mix_1 + int(read_.size());
    move.step.terms = std::move(terms);
    for (size_t i = 0; i < read_.size(); ++i) {
      const size_t slot = find_slot([&](int id) { return id == read_[i]; });
      move.slots.push_back(int(slot));
      slot_[slot] = written_[i];
    }
    moves_.push_back(std::move(move));
  }

  /// Exchanges and sorts until lanes are as they are written. Without a sort it may take fewer moves.
  void bring_lanes() {
    RouteBits other = *this;
    other.exchange_lanes();
    if (form_.sorted_bits > 0) sort_lanes();
    if (form_.sorted_bits > 0 && moves_.size() <= other.moves_.size()) return;
    lane_ = other.lane_;
    slot_ = other.slot_;
    moves_ = std::move(other.moves_);
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

  /// Each exchange brings a bit to its own lane, except those that open a cycle of lanes.
  void exchange_lanes() {
    for (size_t last = 0;;) {
      size_t slot = find_slot([&](int id) { return has(wanted_, id); });
      auto lane = size_t(std::mismatch(lane_.begin(), lane_.end(), wanted_.begin()).first - lane_.begin());
      if (lane == lane_.size()) return;
      if (slot == slot_.size())
        slot = last;
      else
        lane = size_t(std::find(wanted_.begin(), wanted_.end(), slot_[slot]) - wanted_.begin());
      exchange(lane, slot);
      last = slot;
    }
  }

  /// A sort does not split bytes.
  void sort_lanes() {
    if (lane_[0] != wanted_[0]) {
      const auto lane = size_t(std::find(lane_.begin(), lane_.end(), wanted_[0]) - lane_.begin());
      if (lane < lane_.size()) {
        const size_t slot = find_slot([&](int id) { return has(wanted_, id); });
        exchange(lane, slot < slot_.size() ? slot : 0);
      }
      exchange(0, find_slot([&](int id) { return id == wanted_[0]; }));
    }
    for (const bool own : {true, false})  // first those whose own lane is free
      for (size_t slot = 0; slot < slot_.size(); ++slot) {
        auto lane = size_t(std::find(wanted_.begin(), wanted_.end(), slot_[slot]) - wanted_.begin());
        if (lane == wanted_.size() || (own && has(wanted_, lane_[lane]))) continue;
        for (size_t i = 0; has(wanted_, lane_[lane]); ++i) lane = i;
        exchange(lane, slot);
      }
    const size_t top = lane_.size() - 1;
    if (size_t(form_.sorted_bits) < top && lane_[top] != wanted_[top]) {
      Ids below = lane_;
      std::swap(*std::find(below.begin(), below.end(), wanted_[top]), below[top - 1]);
      sort(below);
      std::swap(lane_[top], lane_[top - 1]);
      moves_.emplace_back().step.code = Route::swap;
    }
    sort(wanted_);
  }

  void exchange(size_t lane, size_t slot) {
    std::swap(lane_[lane], slot_[slot]);
    Move& move = moves_.emplace_back();
    move.step.code = int(lane) * Route::most_slots;
    move.slots = {int(slot)};
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
