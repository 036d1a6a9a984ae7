#include "kernels/pack/cpu/route.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/pack/cpu/numbers.h"

namespace mxfp4 {

namespace {

constexpr int least_piece = 4;           // bytes; units of shorter ones are moved sooner one by one
constexpr int enough_bytes = 2048;       // of a block: more are not faster
constexpr int64_t least_past = 2 << 20;  // bytes of a matrix: a smaller one stays in a cache
constexpr size_t line_bits = 7;          // of a nibble's number in a line of the cache

bool has(const Ids& ids, int id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// The places of the block's bits, from the input through each step to the output.
class Bits {
 public:
  Bits(const std::vector<Bit>& all, const Ids& read, const Ids& written, VectorForm form)
      : all_(all), read_(read), written_(written), form_(form) {}

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
    move.step.kind = Route::Kind(Route::mix_1 + read_.size());
    move.step.terms = std::move(terms);
    for (size_t i = 0; i < read_.size(); ++i) {
      const size_t slot = find_slot([&](int id) { return id == read_[i]; });
      move.slots.push_back(int(slot));
      slot_[slot] = written_[i];
    }
    moves_.push_back(std::move(move));
  }

  /// Exchanges and sorts until lanes are as they are written. A sort does not split bytes.
  void bring_lanes() {
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
      moves_.emplace_back().step.kind = Route::swap;
    }
    sort(wanted_);
  }

  /// The moves in passes, each with as many as fit into a group.
  std::vector<Route::Pass> passes() const {
    std::vector<Route::Pass> out;
    std::vector<std::vector<Move>> parts(1);
    Ids slots;
    for (const Move& move : moves_) {
      Ids both = slots;
      for (const int slot : move.slots)
        if (!has(both, slot)) both.push_back(slot);
      if (both.size() > Route::most_slots) {
        parts.emplace_back();
        both = move.slots;
      }
      parts.back().push_back(move);
      slots = std::move(both);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      out.push_back(pass(parts[i], last ? slot_ : loaded_, last ? &Bit::to : &Bit::from));
    }
    return out;
  }

  /// The block's pieces on one side, as its bits are placed now. No piece is longer than a vector.
  Route::Pieces pieces(int64_t Bit::*side) const {
    std::vector<int64_t> steps;
    for (const Ids& ids : {lane_, slot_})
      for (const int id : ids) steps.push_back(all_[size_t(id)].*side / 2);
    Route::Pieces out;
    if (all_[size_t(lane_[0])].*side != 1) return out;  // bytes are split
    steps.erase(steps.begin());
    out.bytes = 1;
    for (size_t i = 0; i + 1 < lane_.size() && steps[i] == out.bytes; ++i) out.bytes *= 2;
    const std::vector<int64_t> places = sums_of(steps);
    for (size_t at = 0; at < places.size(); at += size_t(out.bytes)) out.at.push_back(places[at]);
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

  void exchange(size_t lane, size_t slot) {
    std::swap(lane_[lane], slot_[slot]);
    Move& move = moves_.emplace_back();
    move.step.lane = int(lane);
    move.slots = {int(slot)};
  }

  void sort(const Ids& lanes) {
    if (lane_ == lanes) return;
    Move& move = moves_.emplace_back();
    move.step.kind = Route::sort;
    for (size_t i = 0; i < 64; ++i)
      for (size_t k = 1; k < lane_.size(); ++k) {
        const auto now = std::find(lanes.begin(), lanes.end(), lane_[k]) - lanes.begin() - 1;
        move.step.index[i] = uint8_t(move.step.index[i] | (i >> now & 1) << (k - 1));
      }
    lane_ = lanes;
  }

  /// A pass of these moves. Slots that no move needs are those that are nearest in memory on `side`; the nearest is
  /// the last, because run_route.h stores vectors that differ in it after one another. ids: what is in the slots there.
  Route::Pass pass(const std::vector<Move>& moves, const Ids& ids, int64_t Bit::*side) const {
    Ids slots, others(slot_.size());
    const auto add = [&](const Ids& more) {
      for (const int slot : more)
        if (slots.size() < Route::most_slots && !has(slots, slot)) slots.push_back(slot);
    };
    for (const Move& move : moves)
      if (move.step.kind >= Route::mix_1) add(move.slots);  // planes are told apart by the lowest bits
    const auto planes = int64_t(slots.size());
    for (const Move& move : moves) add(move.slots);
    std::iota(others.begin(), others.end(), 0);
    const auto step = [&](int slot) { return all_[size_t(ids[size_t(slot)])].*side; };
    std::sort(others.begin(), others.end(), [&](int a, int b) { return step(a) < step(b); });
    add(others);
    const auto nearest = std::find(slots.begin() + planes, slots.end(), others.empty() ? 0 : others[0]);
    if (nearest != slots.end()) std::rotate(nearest, nearest + 1, slots.end());
    Route::Pass out;
    out.slots = int(slots.size());
    std::vector<int64_t> steps;
    for (const int slot : slots) steps.push_back(int64_t(1) << slot);
    const std::vector<int64_t> at = sums_of(steps);
    std::copy(at.begin(), at.end(), out.at.begin());
    out.mask = int(at.back());
    for (const Move& move : moves) {
      out.steps.push_back(move.step);
      if (move.step.kind == Route::exchange_0)
        out.steps.back().kind = Route::Kind(std::find(slots.begin(), slots.end(), move.slots[0]) - slots.begin());
    }
    return out;
  }

  const std::vector<Bit>& all_;
  const Ids read_, written_;
  const VectorForm form_;
  Ids block_, lane_, slot_;
  Ids wanted_, loaded_;  // the lanes of the written vectors, and the slots of those that are read
  std::vector<Move> moves_;
};

/// What the planes of a unit add to one another, 1 << bits planes.
std::vector<Route::Term> terms_of(const ModeLayout& layout, const Numbers& n, bool packing) {
  const size_t planes = size_t(1) << n.gathered.size();
  std::vector<Route::Term> terms(planes * planes);
  for (size_t stored = 0; stored < layout.bit.size(); ++stored) {
    const size_t bit = size_t(layout.bit[stored]), gathered = size_t(n.plane[bit / 8]) * 8 + bit % 8;
    const size_t from = packing ? gathered : stored, to = packing ? stored : gathered;
    Route::Term& term = terms[to / 8 * planes + from / 8];
    term.matrix |= uint64_t(1) << (from % 8 + 8 * (7 - to % 8));
    term.used |= 1 << from % 8 / 4;
    for (size_t x = 0; x < 16; ++x)
      if (x >> from % 4 & 1) term.nibble[from % 8 / 4][x] |= uint8_t(1 << to % 8);
  }
  return terms;
}

/// The blocks of a strip: one for each combination of the digits and of the bits outside of a block.
std::vector<Route::Block> blocks_of(const Numbers& n, const Ids& block, bool packing) {
  std::vector<std::vector<Bit>> digits = n.digits;
  for (int id = 0; id < int(n.bits.size()); ++id)
    if (!has(block, id) && !has(n.gathered, id) && !has(n.stored, id)) digits.push_back({{}, n.bits[size_t(id)]});
  std::vector<Bit> sums = {{n.first, 0}};
  for (const auto& digit : digits) {
    std::vector<Bit> longer;
    for (const Bit& d : digit)
      for (const Bit& s : sums) longer.push_back({s.from + d.from, s.to + d.to});
    sums = std::move(longer);
  }
  std::sort(sums.begin(), sums.end(), [](const Bit& a, const Bit& b) { return a.to < b.to; });
  std::vector<Route::Block> blocks;
  for (const Bit& s : sums)
    blocks.push_back(packing ? Route::Block{s.from / 2, s.to / 2} : Route::Block{s.to / 2, s.from / 2});
  return blocks;
}

/// Whether each group of the last pass writes whole cache lines.
bool are_whole_lines(const Route& route, VectorForm form) {
  if (route.to.bytes < form.bytes()) return false;
  const Route::Pass& last = route.passes.back();
  for (const Route::Block& b : route.blocks)
    if (b.to % 64) return false;
  const int vectors = 64 / form.bytes();
  std::vector<int64_t> at;
  for (int v = 0; v < 1 << last.slots; ++v) at.push_back(route.to.at[size_t(last.at[size_t(v)])]);
  std::sort(at.begin(), at.end());
  for (size_t v = 0; v < at.size(); ++v)
    if (at[v] % 64 != int64_t(v % size_t(vectors)) * form.bytes()) return false;
  return at.size() % size_t(vectors) == 0;
}

std::optional<Route> find_route(const ModeLayout& layout, const Numbers& n, VectorForm form, bool packing) {
  std::vector<Bit> all = n.bits;
  if (!packing)
    for (Bit& b : all) std::swap(b.from, b.to);
  Bits bits = packing ? Bits(all, n.gathered, n.stored, form) : Bits(all, n.stored, n.gathered, form);
  if (!bits.place()) return std::nullopt;
  Route route;
  route.bytes = bits.bytes();
  route.inner.bytes = form.bytes();
  for (int at = 0; at < route.bytes; at += form.bytes()) route.inner.at.push_back(at);
  route.row = layout.storage.b;
  route.from = bits.pieces(&Bit::from);
  bits.bring_planes();
  if (n.mixes) bits.mix(terms_of(layout, n, packing));
  bits.bring_lanes();
  route.passes = bits.passes();
  route.to = bits.pieces(&Bit::to);
  if (route.from.bytes < least_piece || route.to.bytes < least_piece) return std::nullopt;
  route.blocks = blocks_of(n, bits.block(), packing);
  route.past_caches = layout.storage.n * layout.storage.b >= least_past && are_whole_lines(route, form);
  return route;
}

}  // namespace

std::optional<Routes> find_routes(const ModeLayout& layout, int64_t tiles, VectorForm form) {
  const auto numbers = numbers_of(layout, tiles);
  if (!numbers) return std::nullopt;
  auto pack = find_route(layout, *numbers, form, true);
  auto unpack = find_route(layout, *numbers, form, false);
  if (!pack || !unpack) return std::nullopt;
  return Routes{std::move(*pack), std::move(*unpack)};
}

}  // namespace mxfp4
