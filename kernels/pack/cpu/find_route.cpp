// The search for a route. Bits of a block change places step by step, from the input's to the output's.
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/pack/cpu/route_parts.h"

namespace mxfp4 {

namespace {

constexpr int least_piece = 4;           // bytes; units of shorter ones are moved sooner one by one
constexpr int64_t least_past = 2 << 20;  // bytes of a matrix: a smaller one stays in a cache
constexpr int enough_bytes = 2048;       // of a block: more are not faster
constexpr size_t line_bits = 7;          // of a nibble's number in a line of the cache

/// The bits that count the nibbles of a strip. A bit that numbers the bytes of a unit whose bits are mixed has one
/// distance only; the other is 0.
struct StripBits {
  List bits;
  Ids read, written;         // bits of such a unit's bytes
  List mixing;               // of such a unit: its bits, numbered by those bits
  Bit first = {};            // of a unit in the strip
  std::vector<List> digits;  // digits that are no bits
};

/// Unpacking for packing.
StripBits reversed(StripBits n) {
  const auto reverse = [](List& list) {
    for (Bit& b : list) std::swap(b.from, b.to);
  };
  for (List* list : {&n.bits, &n.mixing}) reverse(*list);
  for (List& list : n.digits) reverse(list);
  std::swap(n.first.from, n.first.to);
  std::swap(n.read, n.written);
  return n;
}

/// A unit whose bits are mixed. False: its bytes have no bits of their own.
bool add_unit(StripBits& n, const ModeLayout& layout) {
  std::vector<int64_t> places, steps;
  for (const Step& s : layout.gather) places.push_back(s.row * layout.storage.b * 2 + s.bit / 4);
  std::vector<int64_t> sorted = places;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); i *= 2) steps.push_back(sorted[i] - sorted[0]);
  std::vector<int64_t> sums = sums_of(steps);
  for (int64_t& sum : sums) sum += sorted[0];
  n.first.from = sorted[0];
  n.bits.push_back({1, 1});
  for (size_t i = 0; i < steps.size(); ++i) {
    n.read.push_back(int(n.bits.size()));
    n.bits.push_back({steps[i], 0});
    n.written.push_back(int(n.bits.size()));
    n.bits.push_back({0, int64_t(2) << i});
  }
  for (int64_t to = 0; to < int64_t(layout.bit.size()); ++to) {
    const int from = layout.bit[size_t(to)];
    n.mixing.push_back(
        {(std::find(sums.begin(), sums.end(), places[size_t(from / 8)]) - sums.begin()) * 8 + from % 8, to});
  }
  std::sort(sums.begin(), sums.end());
  return sums == sorted && std::adjacent_find(sums.begin(), sums.end()) == sums.end();
}

/// Adds a digit's factors of two as bits if its values move evenly.
void add_digit(StripBits& n, List list) {
  const auto is_even = [&] {
    for (int64_t i = 0; i < int64_t(list.size()); ++i)
      if (list[size_t(i)].from != i * list[1].from || list[size_t(i)].to != i * list[1].to) return false;
    return true;
  };
  while (list.size() % 2 == 0 && is_even()) {
    n.bits.push_back(list[1]);
    for (size_t i = 0; i < list.size() / 2; ++i) list[i] = list[2 * i];
    list.resize(list.size() / 2);
  }
  if (list.size() > 1) n.digits.push_back(std::move(list));
}

/// How far the bits of a block move on one side in memory. bytes: of a piece, which is no longer than a vector; 0 if
/// bytes are split.
struct Side {
  int bytes = 0;
  std::vector<int64_t> piece, slot;
};

class Finder {
 public:
  Finder(const StripBits& n, VectorForm form) : n_(n), form_(form) {}

  std::optional<Route> find(bool packing, bool is_large) {
    if (!place()) return std::nullopt;
    const Side from = side(&Bit::from);
    bring_lanes();
    const Side to = side(&Bit::to);
    if (from.bytes < least_piece || to.bytes < least_piece) return std::nullopt;
    const bool gathers = from.bytes < form_.least_load(), scatters = to.bytes < form_.least_load();
    Route route;
    route.bytes = bytes();
    route.passes = passes(gathers ? inner() : from, scatters ? inner() : to);
    const Route::Pieces read = pieces_of(from);
    if (gathers) route.from = read;
    if (scatters) route.to = pieces_of(to);
    find_lines(route, read.at);
    if (!add_blocks(route, packing)) return std::nullopt;
    route.past_caches = form_.passes_caches && is_large && are_whole_lines(route);
    return route;
  }

 private:
  /// A step and the slots that it needs, before it is known which ones a group has.
  struct Move {
    Route::Step step{};
    Ids slots = {};
  };

  const Bit& at(int id) const { return n_.bits[size_t(id)]; }
  int bytes() const { return 1 << (std::min<size_t>(block_.size(), 30) - 1); }

  /// The bits that move 1, 2, 4, .. nibbles, up to a line.
  Ids line(int64_t Bit::*side) const {
    Ids found;
    for (int64_t step = 1; found.size() < line_bits; step *= 2) {
      const auto is = [&](const Bit& b) { return b.*side == step; };
      const auto bit = std::find_if(n_.bits.begin(), n_.bits.end(), is);
      if (bit == n_.bits.end()) break;
      found.push_back(int(bit - n_.bits.begin()));
    }
    return found;
  }

  /// Adds to `ids` a bit that both sides have and that `fits`; a bit of the block is preferred. Returns false if there
  /// is none.
  template <class Fits>
  bool take(Ids& ids, Fits fits) {
    Ids all = block_;
    for (int id = 0; id < int(n_.bits.size()); ++id)
      if (!has(block_, id)) all.push_back(id);
    const auto found = std::find_if(
        all.begin(), all.end(), [&](int id) { return at(id).from > 0 && at(id).to > 0 && !has(ids, id) && fits(id); });
    if (found == all.end()) return false;
    ids.push_back(*found);
    if (!has(block_, *found)) block_.push_back(*found);
    return true;
  }

  /// Chooses the block, and places its bits as they are read. Returns false if the strip has too few bits.
  bool place() {
    const Ids from = line(&Bit::from), to = line(&Bit::to);
    for (const Ids& ids : {from, to, n_.read})
      for (const int id : ids)
        if (!has(block_, id) && !has(n_.written, id)) block_.push_back(id);
    const auto lanes = size_t(form_.lane_bits) + 1;
    lane_.assign(from.begin(), from.begin() + int64_t(std::min(lanes, from.size())));
    wanted_.assign(to.begin(), to.begin() + int64_t(std::min(lanes, to.size())));
    const auto fill = [&](Ids& ids, const Ids& others) {
      while (ids.size() < lanes)
        if (!take(ids, [&](int id) { return has(others, id); }) && !take(ids, [](int) { return true; })) return false;
      return true;
    };
    if (!fill(lane_, wanted_) || !fill(wanted_, lane_)) return false;
    const auto is_new = [&](int id) { return !has(block_, id); };
    std::copy_if(block_.begin(), block_.end(), std::back_inserter(slot_), [&](int id) { return !has(lane_, id); });
    while (slot_.size() < std::max<size_t>(n_.read.size(), 1))
      if (!take(slot_, is_new)) return false;
    while (bytes() < enough_bytes && take(slot_, is_new)) continue;
    loaded_ = slot_;
    return bytes() <= Route::most_bytes;
  }

  /// Moves bits until lanes are as they are written. After planes are mixed, the bits that number a unit's output bytes
  /// are at the places of those of its input bytes.
  void bring_lanes() {
    Ids lanes = lane_;
    for (int& id : lanes)
      if (const auto of = std::find(n_.read.begin(), n_.read.end(), id); of != n_.read.end())
        id = n_.written[size_t(of - n_.read.begin())];
    size_t last = 0;
    for (const LaneMove& m : find_moves({lanes, wanted_, n_.written, !n_.mixing.empty(), slot_.size()}, form_)) {
      if (m.code == Route::mix_1) {
        mix_planes();
      } else if (m.code == Route::sort) {
        sort_lanes();
      } else {
        if (m.id >= 0 || has(wanted_, slot_[last]) || has(n_.read, slot_[last]))
          last = find_slot([&](int id) { return m.id < 0 ? !has(wanted_, id) && !has(n_.read, id) : id == m.id; });
        Move& move = moves_.emplace_back();
        move.step.code = m.code + m.lane * Route::most_slots;
        move.slots = {int(last)};
        slot_[last] = move_lanes(lane_, {m.code, m.lane, slot_[last]});
      }
    }
  }

  template <class Fits>
  size_t find_slot(Fits fits) const {
    return size_t(std::find_if(slot_.begin(), slot_.end(), fits) - slot_.begin());
  }

  void mix_planes() {
    Ids planes;
    for (const int id : n_.read) planes.push_back(int(find_slot([&](int i) { return i == id; })));
    for (Route::Step& step : mixed(n_.mixing, 1 << planes.size(), form_.mixing)) {
      const bool mixes = step.code >= Route::mix_1;
      const Ids slots = mixes ? planes : Ids{planes[size_t(step.code)]};
      if (!mixes) step.code = 0;
      moves_.push_back({std::move(step), slots});
    }
    for (size_t i = 0; i < planes.size(); ++i) slot_[size_t(planes[i])] = n_.written[i];
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
    Route::Step& step = moves_.emplace_back().step;
    step.code = Route::sort;
    for (size_t i = 0; i < 64; ++i)
      for (size_t k = 1; k < lane_.size(); ++k) {
        const auto now = std::find(lanes.begin(), lanes.end(), lane_[k]) - lanes.begin() - 1;
        step.index[i] = uint8_t(step.index[i] | (i >> now & 1) << (k - 1));
      }
    lane_ = lanes;
  }

  /// The steps in memory, as bits are placed now.
  Side side(int64_t Bit::*side) const {
    Side out;
    if (at(lane_[0]).*side != 1) return out;
    size_t i = 1;
    for (out.bytes = 1; i < lane_.size() && at(lane_[i]).*side == out.bytes * 2; ++i) out.bytes *= 2;
    for (; i < lane_.size(); ++i) out.piece.push_back(at(lane_[i]).*side / 2);
    for (const int id : slot_) out.slot.push_back(at(id).*side / 2);
    return out;
  }
  /// The steps of a buffer, where vectors follow one another.
  Side inner() const {
    Side out{form_.bytes(), {}, {}};
    for (size_t i = 0; i < slot_.size(); ++i) out.slot.push_back(int64_t(form_.bytes()) << i);
    return out;
  }

  /// The moves in passes, each with as many as fit into a group. `from` are the steps of the first pass's reads, `to`
  /// of the last pass's writes.
  std::vector<Route::Pass> passes(const Side& from, const Side& to) const {
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
    std::vector<Route::Pass> out;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      slots = group_slots(parts[i], last ? slot_ : loaded_, last ? &Bit::to : &Bit::from);
      Route::Pass& pass = out.emplace_back();
      pass.slots = int(slots.size());
      pass.from = places(slots, i == 0 ? from : inner());
      pass.to = places(slots, last ? to : inner());
      for (const Move& move : parts[i]) {
        pass.steps.push_back(move.step);
        pass.mixes |= move.step.code >= Route::mix_1;
        if (move.step.code < Route::sort)
          pass.steps.back().code += int(std::find(slots.begin(), slots.end(), move.slots[0]) - slots.begin());
      }
    }
    return out;
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
    const auto step = [&](int slot) { return at(ids[size_t(slot)]).*side; };
    std::sort(others.begin(), others.end(), [&](int a, int b) { return step(a) < step(b); });
    add(others);
    const auto nearest = std::find(slots.begin() + planes, slots.end(), others.empty() ? 0 : others[0]);
    if (nearest != slots.end()) std::rotate(nearest, nearest + 1, slots.end());
    return slots;
  }

  Route::Places places(const Ids& slots, const Side& side) const {
    Route::Places out;
    out.pieces = form_.bytes() / side.bytes;
    std::copy(side.piece.begin(), side.piece.end(), out.piece.begin());
    std::vector<int64_t> others;
    for (size_t i = 0; i < slots.size(); ++i) out.slot[i] = side.slot[size_t(slots[i])];
    for (int slot = 0; slot < int(slot_.size()); ++slot)
      if (!has(slots, slot)) others.push_back(side.slot[size_t(slot)]);
    out.groups = sums_of(others);
    return out;
  }

  /// The places of all pieces of a block.
  static Route::Pieces pieces_of(const Side& side) {
    std::vector<int64_t> all = side.piece;
    all.insert(all.end(), side.slot.begin(), side.slot.end());
    return {side.bytes, sums_of(all)};
  }

  /// Lists the lines that a block reads; some are repeated, so that groups have the same number. If blocks share lines,
  /// those that begin with a line ask for it.
  static void find_lines(Route& route, const std::vector<int64_t>& pieces) {
    for (const int64_t piece : pieces)
      if (std::find(route.lines.begin(), route.lines.end(), piece / 64 * 64) == route.lines.end())
        route.lines.push_back(piece / 64 * 64);
    route.shared_lines = int64_t(route.lines.size()) * 64 > route.bytes;
    const size_t groups = route.passes.front().from.groups.size();
    route.group_lines = int64_t((route.lines.size() + groups - 1) / groups);
    route.lines.resize(groups * size_t(route.group_lines), route.lines.back());
  }

  /// One block for each combination of the digits and of the bits outside of a block. False if one begins within a
  /// byte.
  bool add_blocks(Route& route, bool packing) const {
    std::vector<List> digits = n_.digits;
    for (int id = 0; id < int(n_.bits.size()); ++id)
      if (!has(block_, id) && !has(n_.read, id) && !has(n_.written, id)) digits.push_back({{}, at(id)});
    List sums = sums_of(digits, n_.first);
    const auto packed = packing ? &Bit::to : &Bit::from;
    std::sort(sums.begin(), sums.end(), [&](const Bit& a, const Bit& b) { return a.*packed < b.*packed; });
    for (const Bit& s : sums) {
      if (s.from % 2 || s.to % 2) return false;
      route.blocks.push_back({s.from / 2, s.to / 2});
    }
    return true;
  }

  /// Whether each group of the last pass writes whole cache lines.
  bool are_whole_lines(const Route& route) const {
    const Route::Pass& last = route.passes.back();
    const auto is_odd = [](int64_t place) { return place % 64 != 0; };
    if (last.to.pieces > 1 || !route.to.at.empty() ||
        std::any_of(route.blocks.begin(), route.blocks.end(), [&](const Route::Block& b) { return is_odd(b.to); }) ||
        std::any_of(last.to.groups.begin(), last.to.groups.end(), is_odd))
      return false;
    std::vector<int64_t> vectors = sums_of({last.to.slot.begin(), last.to.slot.begin() + last.slots});
    std::sort(vectors.begin(), vectors.end());
    const auto of_line = size_t(64 / form_.bytes());
    for (size_t v = 0; v < vectors.size(); ++v)
      if (vectors[v] % 64 != int64_t(v % of_line) * form_.bytes()) return false;
    return vectors.size() % of_line == 0;
  }

  const StripBits n_;
  const VectorForm form_;
  const size_t most_slots_ = size_t(n_.mixing.empty() ? form_.slots : form_.mixing_slots);
  Ids block_, lane_, slot_;
  Ids wanted_, loaded_;  // the lanes of the written vectors, and the slots of those that are read
  std::vector<Move> moves_;
};

}  // namespace

std::optional<Routes> find_routes(const ModeLayout& layout, const Numbers& numbers, VectorForm form) {
  StripBits bits;
  List run;
  for (int64_t i = 0; i < numbers.run; ++i) run.push_back({i, i});
  if (numbers.run)
    add_digit(bits, run);
  else if (!add_unit(bits, layout))
    return std::nullopt;
  for (const List& list : numbers.lists) add_digit(bits, list);
  const bool is_large = layout.storage.n * layout.storage.b >= least_past;
  auto pack = Finder(bits, form).find(true, is_large), unpack = Finder(reversed(bits), form).find(false, is_large);
  if (!pack || !unpack) return std::nullopt;
  return Routes{std::move(*pack), std::move(*unpack)};
}

}  // namespace mxfp4
