#include "kernels/pack/cpu/mode_plan.h"

#include <algorithm>
#include <utility>

namespace mxfp4 {

namespace {

constexpr int least_piece = 4;        // bytes; units of shorter ones are moved sooner one by one
constexpr int enough_bytes = 2048;    // of a block: vectors wait for one another in smaller ones
constexpr int64_t least_past = 4096;  // bytes of a strip: less is not worth the wait at its end
constexpr size_t line_bits = 6;       // of a byte's number in a line of the cache

/// A bit of a byte's number: the distances that it moves the byte in the input and in the output. A bit that numbers
/// the bytes of a unit has one distance only; the other is 0.
struct Bit {
  int64_t from = 0, to = 0;
};
using Ids = std::vector<int>;  // of bits: their places in a list of all

bool has(const Ids& ids, int id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// Sum i is of the steps whose bits are set in i.
std::vector<int64_t> sums_of(const std::vector<int64_t>& steps) {
  std::vector<int64_t> sums = {0};
  for (const int64_t step : steps)
    for (size_t i = 0, size = sums.size(); i < size; ++i) sums.push_back(sums[i] + step);
  return sums;
}

/// The steps whose sums are these places, each once, or nothing. The least place is 0.
std::optional<std::vector<int64_t>> steps_of(std::vector<int64_t> places) {
  std::sort(places.begin(), places.end());
  std::vector<int64_t> steps;
  for (size_t i = 1; i < places.size(); i *= 2) steps.push_back(places[i]);
  std::vector<int64_t> sums = sums_of(steps);
  std::sort(sums.begin(), sums.end());
  const bool once = std::adjacent_find(sums.begin(), sums.end()) == sums.end();
  return once && sums == places ? std::optional(steps) : std::nullopt;
}

/// The bytes of a strip: `from` is an offset in the strip, `to` in its packed bytes.
struct Numbers {
  std::vector<Bit> bits;
  Ids gathered, stored;                  // bits of a unit's bytes
  std::vector<int> plane;                // of each gathered byte: its number by those bits
  int64_t first = 0;                     // of a unit's bytes in the strip
  std::vector<std::vector<Bit>> digits;  // digits that are no bits: the move of each value
};

void add_digit(Numbers& n, int64_t count, Bit step) {
  for (; count % 2 == 0; count /= 2) {
    n.bits.push_back(step);
    step = {step.from * 2, step.to * 2};
  }
  std::vector<Bit> odd;
  for (int64_t i = 0; i < count; ++i) odd.push_back({i * step.from, i * step.to});
  n.digits.push_back(std::move(odd));
}

/// False: the unit's bytes have no such bits.
bool add_unit(Numbers& n, const ModeLayout& layout) {
  std::vector<int64_t> places;
  for (const auto& p : layout.gather) places.push_back(p.row * layout.storage.b + p.byte);
  n.first = *std::min_element(places.begin(), places.end());
  for (int64_t& p : places) p -= n.first;
  const auto steps = steps_of(places);
  if (!steps) return false;
  for (size_t i = 0; i < steps->size(); ++i) {
    n.gathered.push_back(int(n.bits.size()));
    n.bits.push_back({(*steps)[i], 0});
    n.stored.push_back(int(n.bits.size()));
    n.bits.push_back({0, int64_t(1) << i});
  }
  const std::vector<int64_t> sums = sums_of(*steps);
  for (const int64_t p : places) n.plane.push_back(int(std::find(sums.begin(), sums.end(), p) - sums.begin()));
  return true;
}

/// A digit whose values move as a list says.
void add_list(Numbers& n, const std::vector<Bit>& list) {
  const Bit step = list.size() > 1 ? list[1] : Bit{};
  bool even = true;
  for (int64_t i = 0; i < int64_t(list.size()); ++i)
    even = even && list[size_t(i)].from == i * step.from && list[size_t(i)].to == i * step.to;
  if (even)
    add_digit(n, int64_t(list.size()), step);
  else
    n.digits.push_back(list);
}

std::optional<Numbers> numbers_of(const ModeLayout& layout, int64_t tiles) {
  Numbers n;
  if (layout.runs)
    add_digit(n, layout.unit, {1, 1});
  else if (!add_unit(n, layout))
    return std::nullopt;
  for (const ModeLayout::Digit& d : layout.strip) {
    const auto moves = [&](int64_t i) {
      const Step s = d.mode.at(i);
      return Bit{s.row * layout.storage.b + s.bit / 8, i * d.weight / 8};
    };
    std::vector<Bit> list;
    for (int64_t i = 0; i < d.mode.count; ++i) list.push_back(moves(i));
    add_list(n, list);
  }
  std::vector<Bit> list;
  for (int64_t i = 0; i < tiles; ++i)
    list.push_back({i * layout.tile.n * layout.storage.b, layout.down[size_t(i)] - layout.down[0]});
  add_list(n, list);
  return n;
}

/// The places of the block's bits, from the input through each shuffle to the output.
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
    const auto lanes = size_t(form_.lane_bits);
    lane_.assign(from.begin(), from.begin() + int64_t(std::min(lanes, from.size())));
    wanted_.assign(to.begin(), to.begin() + int64_t(std::min(lanes, to.size())));
    const auto fill = [&](Ids& ids, const Ids& others) {
      while (ids.size() < lanes)
        if (!take(ids, [&](int id) { return has(others, id); }) && !take(ids, [](int) { return true; })) return false;
      return true;
    };
    if (!fill(lane_, wanted_) || !fill(wanted_, lane_)) return false;
    while (kept_.size() < size_t(form_.kept_bits))
      if (!take(kept_, [&](int id) { return !has(lane_, id) && !has(wanted_, id); })) return false;
    for (const int id : block_)
      if (!has(lane_, id) && !has(kept_, id)) slot_.push_back(id);
    while (slot_.size() < read_.size())
      if (!take(slot_, [&](int id) { return !has(block_, id); })) return false;
    while (bytes() < enough_bytes && take(slot_, [&](int id) { return !has(block_, id); })) continue;
    return bytes() <= ModePlan::most_bytes;
  }

  int bytes() const { return 1 << std::min<size_t>(block_.size(), 30); }
  const Ids& block() const { return block_; }

  /// Shuffles until the bits that number a unit's input bytes are in slots.
  std::vector<ModePlan::Shuffle> before() {
    std::vector<ModePlan::Shuffle> out;
    for (size_t lane = 0; lane < lane_.size(); ++lane) {
      if (!has(read_, lane_[lane])) continue;
      size_t slot = find_slot([&](int id) { return has(wanted_, id); });
      if (slot == slot_.size()) slot = find_slot([&](int id) { return !has(read_, id); });
      exchange(out, lane, slot);
    }
    return out;
  }

  /// The place of each plane. Afterwards, the bits that number a unit's output bytes are at the places of those of its
  /// input bytes.
  std::vector<int> mix() {
    std::vector<int64_t> steps;
    for (size_t i = 0; i < read_.size(); ++i) {
      const size_t slot = find_slot([&](int id) { return id == read_[i]; });
      steps.push_back(int64_t(1) << slot);
      slot_[slot] = written_[i];
    }
    const auto sums = sums_of(steps);
    return {sums.begin(), sums.end()};
  }

  /// Shuffles until lanes are as they are written.
  std::vector<ModePlan::Shuffle> after() {
    std::vector<ModePlan::Shuffle> out;
    for (size_t slot = 0; slot < slot_.size(); ++slot) {
      if (!has(wanted_, slot_[slot])) continue;
      const auto lane = std::find_if(lane_.begin(), lane_.end(), [&](int id) { return !has(wanted_, id); });
      exchange(out, size_t(lane - lane_.begin()), slot);
    }
    if (lane_ == wanted_) return out;
    if (out.empty()) {
      last_ = {lane_};
      out.emplace_back();
    }
    lane_ = wanted_;
    set_index(out.back());
    return out;
  }

  /// The block's pieces on one side, as its bits are placed now.
  ModePlan::Pieces pieces(int64_t Bit::*side) const {
    std::vector<int64_t> steps;
    for (const Ids& ids : {lane_, kept_, slot_})
      for (const int id : ids) steps.push_back(all_[size_t(id)].*side);
    ModePlan::Pieces out{1, {}, {}};
    for (size_t i = 0; i < std::min(steps.size(), line_bits) && steps[i] == out.bytes; ++i) out.bytes *= 2;
    const std::vector<int64_t> places = sums_of(steps);
    for (size_t at = 0; at < places.size(); at += size_t(out.bytes)) out.all.push_back({int(at), places[at]});
    std::sort(out.all.begin(), out.all.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
    const size_t vector = size_t(1) << form_.bits();
    for (size_t at = 0; at < places.size() && size_t(out.bytes) >= vector; at += vector)
      out.vectors.push_back(places[at]);
    return out;
  }

 private:
  /// The bits that move 1, 2, 4, .. bytes, up to a line.
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

  void exchange(std::vector<ModePlan::Shuffle>& out, size_t lane, size_t slot) {
    last_ = {lane_, slot_[slot], lane_[lane]};
    std::swap(lane_[lane], slot_[slot]);
    out.emplace_back().apart = 1 << slot;
    set_index(out.back());
  }

  /// Sets the indices of the shuffle that changes the bits from last_ to the current ones.
  void set_index(ModePlan::Shuffle& s) const {
    const int lanes = 1 << form_.lane_bits;
    for (int i = 0; i < 2 * lanes; ++i) {
      const auto value = [&](int id) {
        const auto lane = std::find(lane_.begin(), lane_.end(), id) - lane_.begin();
        return (id == last_.slot_after ? i / lanes : i >> lane) & 1;
      };
      int from = last_.slot < 0 ? 0 : value(last_.slot) * lanes;
      for (size_t k = 0; k < last_.lane.size(); ++k) from |= value(last_.lane[k]) << k;
      s.index[size_t(i / lanes)][size_t(i % lanes)] = uint8_t(from);
    }
  }

  const std::vector<Bit>& all_;
  const Ids read_, written_;
  const VectorForm form_;
  Ids block_, lane_, kept_, slot_;
  Ids wanted_;  // the lanes of the written vectors
  struct {
    Ids lane;
    int slot = -1, slot_after = -1;
  } last_;  // state before a shuffle: the lanes, and the bits that it moves from and to a slot
};

ModePlan::Term term_of(int from, uint64_t matrix) {
  ModePlan::Term term{from, matrix, {}};
  for (size_t x = 0; x < 16; ++x)
    for (int i = 0; i < 64; ++i)  // bit i % 8 of a byte makes bit 7 - i / 8
      if (matrix >> i & 1) term.nibble[size_t(i % 8 / 4)][x] |= uint8_t((x >> i % 4 & 1) << (7 - i / 8));
  return term;
}

/// at: the place of each plane. If units of one byte keep their bits, there are no planes.
std::vector<ModePlan::Plane> planes_of(const ModeLayout& layout, const Numbers& n, const std::vector<int>& at,
                                       bool packing) {
  std::vector<ModePlan::Plane> out;
  for (size_t to = 0; to < at.size() && !layout.runs; ++to) {
    std::vector<uint64_t> matrix(at.size());
    for (size_t stored = 0; stored < layout.bit.size(); ++stored) {
      const size_t bit = size_t(layout.bit[stored]), gathered = size_t(n.plane[bit / 8]) * 8 + bit % 8;
      const size_t from = packing ? gathered : stored, goes = packing ? stored : gathered;
      if (goes / 8 == to) matrix[from / 8] |= uint64_t(1) << (from % 8 + 8 * (7 - goes % 8));
    }
    auto& plane = out.emplace_back(ModePlan::Plane{at[to], {}});
    for (size_t from = 0; from < at.size(); ++from)
      if (matrix[from]) plane.terms.push_back(term_of(at[from], matrix[from]));
  }
  return out;
}

/// The blocks of a strip: one for each combination of the digits and of the bits outside of a block.
std::vector<ModePlan::Block> blocks_of(const Numbers& n, const Ids& block, bool packing) {
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
  std::vector<ModePlan::Block> blocks;
  for (const Bit& s : sums) blocks.push_back(packing ? ModePlan::Block{s.from, s.to} : ModePlan::Block{s.to, s.from});
  return blocks;
}

bool are_whole_lines(const ModePlan& plan) {
  bool whole = plan.bytes % 64 == 0;
  for (size_t i = 0; i < plan.to.all.size(); ++i)
    whole = whole && plan.to.all[i].place % 64 == int64_t(i) * plan.to.bytes % 64;
  for (const ModePlan::Block& b : plan.blocks) whole = whole && b.to % 64 == 0;
  return whole;
}

std::optional<ModePlan> find_plan(const ModeLayout& layout, const Numbers& n, VectorForm form, bool packing) {
  std::vector<Bit> all = n.bits;
  if (!packing)
    for (Bit& b : all) std::swap(b.from, b.to);
  Bits bits = packing ? Bits(all, n.gathered, n.stored, form) : Bits(all, n.stored, n.gathered, form);
  if (!bits.place()) return std::nullopt;
  ModePlan plan;
  plan.bytes = bits.bytes();
  for (int at = 0; at < plan.bytes; at += 1 << form.bits()) plan.in_a_row.push_back(at);
  plan.row = layout.storage.b;
  plan.from = bits.pieces(&Bit::from);
  plan.before = bits.before();
  const std::vector<int> at = bits.mix();
  plan.planes = planes_of(layout, n, at, packing);
  plan.plane_bits = at.back();
  plan.after = bits.after();
  plan.to = bits.pieces(&Bit::to);
  if (plan.from.bytes < least_piece || plan.to.bytes < least_piece) return std::nullopt;
  plan.blocks = blocks_of(n, bits.block(), packing);
  plan.past_caches = are_whole_lines(plan) && int64_t(plan.blocks.size()) * plan.bytes >= least_past;
  return plan;
}

}  // namespace

std::optional<ModePlans> find_plans(const ModeLayout& layout, int64_t tiles, VectorForm form) {
  const auto numbers = numbers_of(layout, tiles);
  if (!numbers) return std::nullopt;
  auto pack = find_plan(layout, *numbers, form, true);
  auto unpack = find_plan(layout, *numbers, form, false);
  if (!pack || !unpack) return std::nullopt;
  return ModePlans{std::move(*pack), std::move(*unpack)};
}

}  // namespace mxfp4
