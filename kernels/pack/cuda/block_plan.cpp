#include "kernels/pack/cuda/block_plan.h"

#include <algorithm>
#include <array>
#include <set>

#include "kernels/device_error.h"
#include "kernels/pack/cuda/plan_banks.h"
#include "kernels/pack/cuda/plan_digits.h"
#include "kernels/pack/cuda/plan_words.h"

namespace mxfp4 {

namespace {

constexpr int64_t pad_step = 16, pads = 8;  // gaps between slots are below a line of shared memory's banks

/// Multiplies the sums by a digit's values, slower than those. at(i, sum): adds value i.
template <class Sum, class At>
void add_digit(std::vector<Sum>& sums, int64_t count, At at) {
  const size_t one = sums.size();
  sums.resize(one * size_t(count));
  for (size_t i = size_t(count); i-- > 0;)
    for (size_t j = 0; j < one; ++j) sums[i * one + j] = at(int64_t(i), sums[j]);
}

/// The sums of the digits' values, the first digit fastest.
template <class Sum, class At>
std::vector<Sum> sums(const std::vector<const PlanDigit*>& digits, Sum zero, At at) {
  std::vector<Sum> out = {zero};
  for (const PlanDigit* d : digits)
    add_digit(out, d->in_block() ? d->inner : d->count(), [&](int64_t i, const Sum& sum) { return at(*d, i, sum); });
  return out;
}

class Planner {
 public:
  Planner(const Modes& modes, Shape storage, int64_t unit_bits, const MutableMatrix& m, HostPlan& to)
      : storage_(storage), matrix_(m), out_(to), plan_(to.plan) {
    digits_ = split_digits(modes, half());
    const GroupSize group = group_size(digits_, unit_bits);
    plan_.group = group.bytes;
    plan_.cols = uint32_t(choose_block(digits_, group.digits, has_links(), half()) / 8);
    for (size_t i = 0; i < digits_.size(); ++i)
      if (i < group.digits) in_group_.push_back(&digits_[i]);
    for (PlanDigit& d : digits_) sort_in(d);
    check_moves();
    place_slots(unit_bits);
    take_slots();
    take_groups();
    take_blocks();
    take_copies();
    choose_threads();
  }

 private:
  using Digits = std::vector<const PlanDigit*>;

  /// Rows from gate's to up's if they alternate in memory and a slot can have a whole row; else 0.
  int64_t half() const {
    const MutableMatrix& m = matrix_;
    const bool in_turn = m.views == 2 && m.view[0].stride == 2 * m.real.b && m.view[1].stride == 2 * m.real.b;
    return in_turn && m.order.block == 0 && storage_.b <= 240 && m.real.b % 16 ? m.padded.n / 2 : 0;
  }

  void sort_in(PlanDigit& d) {
    if (d.is_copy()) {
      if (!is_in_group(d)) copies_.push_back(&d);
    } else if (!d.in_block()) {
      outer_.push_back(&d);
    } else {
      if (!is_in_group(d)) of_groups_.push_back(&d);
      if (d.inner < d.count()) listed_ = &d;
      for (PlanPart& part : d.parts)
        if (!part.in_run) of_slots_.push_back({&part, d.inner < d.count() ? d.inner : part.mode.count});
    }
  }
  bool is_in_group(const PlanDigit& d) const {
    return std::find(in_group_.begin(), in_group_.end(), &d) != in_group_.end();
  }

  /// Slots and blocks begin at whole bytes; groups at whole bytes, or all at the same nibble.
  void check_moves() const {
    for (const PlanDigit& d : digits_)
      for (const PlanPart& part : d.parts)
        for (int64_t i = 0; i < part.mode.count; ++i) {
          const int64_t bits = part.mode.at(i).bit % 8;
          const bool nibble = bits == 4 && d.count() == 2;
          if (bits && !(part.in_run && (nibble || is_in_group(d)))) refuse_layout();
        }
  }

  /// Bytes between slots are chosen so that the lanes of a warp use many banks.
  void place_slots(int64_t unit_bits) {
    plan_.across = (plan_.cols + 15) / 16;
    plan_.across_inverse = uint32_t(((uint64_t(1) << 32) + plan_.across - 1) / plan_.across);
    pitch_ = int64_t(plan_.across) * 16;
    if (has_links()) pitch_ = std::max(pitch_, round_up(std::min<int64_t>(plan_.cols, matrix_.real.b) + 20, 16));
    plan_.link_room = uint32_t(pitch_ - plan_.cols);
    std::vector<int64_t> gaps(of_slots_.size(), 0);
    lay(gaps);
    const Digits all = of_groups_;
    find_form(unit_bits);
    double best = conflicts();
    for (size_t i = 0; i < gaps.size(); ++i) {
      int64_t kept = 0;
      for (int64_t gap = pad_step; gap < pads * pad_step; gap += pad_step) {
        gaps[i] = gap;
        lay(gaps);
        if (const double now = conflicts(); now < best) best = now, kept = gap;
      }
      gaps[i] = kept;
    }
    plan_.shared_bytes = uint32_t(lay(gaps));
    of_groups_ = all;
    find_form(unit_bits);
  }
  /// Sets how words are made of the slots, at their present places, and a thread's groups. Digits that count these are
  /// not in the table of groups.
  void find_form(int64_t unit_bits) {
    find_words(shared_bits(in_group_), unit_bits, base_bits(), plan_);
    if (plan_.group == 16 && plan_.piece < 4 && !plan_.is_repeated)
      for (const PlanDigit* d : find_planes(shared_bits(in_group_), in_group_, of_groups_, plan_))
        std::erase(of_groups_, d);
    // A warp's lanes first follow a line of the packed matrix, then columns, which use all banks.
    auto next = of_groups_.begin();
    for (int64_t bytes = plan_.group; next != of_groups_.end() && bytes < 128; ++next) bytes *= (*next)->inner;
    std::stable_partition(next, of_groups_.end(), [](const PlanDigit* d) {
      return d->parts[0].in_run && d->parts[0].column_step() < pad_step * 8;
    });
    take_together();
  }
  /// The last digits count a thread's groups, so that the table is short: as many groups as keep all threads busy.
  void take_together() {
    if (plan_.is_planar()) {
      plan_.together = BlockPlan::most_together;
      return;
    }
    int64_t all = 1;
    for (const PlanDigit* d : of_groups_) all *= d->inner;
    int64_t least = idle_threads(all, BlockPlan::most_threads);
    Digits best;
    for (int wanted = 2; wanted <= BlockPlan::most_together; ++wanted)
      if (const Digits digits = last_of(wanted); !digits.empty() && all / wanted >= 128)
        if (const int64_t idle = idle_threads(all / wanted, BlockPlan::most_threads); idle <= least)
          least = idle, best = digits;
    const std::vector<GroupAt> groups = groups_of(best);
    plan_.together = int(groups.size());
    for (size_t j = 0; j < groups.size(); ++j) {
      plan_.part[j] = uint32_t(groups[j].to);
      plan_.base[j] = uint32_t(groups[j].bit / 8);
    }
    for (const PlanDigit* d : best) std::erase(of_groups_, d);
  }
  /// Threads without a group in the last round.
  static int64_t idle_threads(int64_t groups, int64_t threads) { return round_up(groups, threads) - groups; }
  /// Digits from the end of of_groups_ whose values are `wanted` groups; empty if no digits give this number.
  Digits last_of(int wanted) const {
    Digits digits;
    for (size_t i = of_groups_.size(); i-- > 0;)
      if (const PlanDigit* d = of_groups_[i]; wanted % d->inner == 0 && d->shared_at(d->inner - 1) % 8 == 0) {
        digits.push_back(d);
        wanted /= int(d->inner);
      }
    return wanted == 1 ? digits : Digits();
  }
  int64_t lay(const std::vector<int64_t>& gaps) {
    int64_t extent = pitch_;
    for (size_t i = 0; i < of_slots_.size(); ++i) {
      const int64_t stride = extent + gaps[i];
      of_slots_[i].part->shared = stride * 8;
      extent += stride * (of_slots_[i].count - 1);
    }
    extent_ = extent;
    return extent;
  }

  /// Whether slots may share chunks of 16 bytes in global memory (link_rows).
  bool has_links() const { return (matrix_.real.b | matrix_.view[0].stride) % 16 != 0; }

  /// What packing 512 bytes costs in wavefronts: groups by a warp's first lanes, and rows. Rows that share chunks of 16
  /// bytes in global memory are read three times as often.
  double conflicts() const {
    Digits lanes;
    for (int64_t count = 1; const PlanDigit* d : of_groups_) {
      if (count >= 32) break;
      lanes.push_back(d);
      count *= d->inner;
    }
    std::vector<int64_t> bases = shared_bits(lanes);
    bases.resize(std::min<size_t>(bases.size(), 32));
    for (int64_t& base : bases) base /= 8;
    const int64_t at_once = plan_.is_planar() ? 4 : plan_.piece;
    std::set<int64_t> accesses;
    for (const int64_t bit : shared_bits(in_group_)) accesses.insert(bit / 8 / at_once * at_once);
    double groups = 0;
    for (const int64_t access : accesses) {
      std::vector<int64_t> places = bases;
      for (int64_t& place : places) place += access;
      groups += double(wavefronts(places, at_once));
    }
    if (plan_.is_planar()) groups *= 4.0 / double(accesses.size());  // 16 accesses for 4 groups
    std::vector<int64_t> chunks;
    for (const Slot& slot : slots_of(0))
      for (int64_t c = 0; c < plan_.across; ++c) chunks.push_back(slot.place + c * 16);
    const double rows = double(wavefronts(chunks, 16)) * 32 / double(chunks.size());
    return groups + (has_links() ? 3 : 1) * rows + double(extent_) / 8192;  // at last, the less memory the better
  }

  /// The places in shared memory of all values of the digits, in bits.
  static std::vector<int64_t> shared_bits(const Digits& digits) {
    return sums(digits, int64_t(0), [](const PlanDigit& d, int64_t i, int64_t sum) { return sum + d.shared_at(i); });
  }
  BaseBits base_bits() const {
    BaseBits found;
    for (const PlanDigit* d : of_groups_)
      for (int64_t i = 0; i < d->inner; ++i) {
        found.bytes |= d->shared_at(i) / 8;
        found.nibbles |= d->shared_at(i) % 8 != 0;
      }
    return found;
  }

  /// The parts of the listed digit, each with slots of its own.
  int64_t lists() const { return listed_ ? listed_->count() / listed_->inner : 1; }

  struct Slot {
    Step from;
    int64_t place;
  };
  /// The slots with the values of one part of the listed digit, in memory's order as the views have the rows: the gaps
  /// of one are filled by the other.
  std::vector<Slot> slots_of(int64_t list) const {
    const auto add = [&](const PlanPart& part, int64_t i, Slot sum) {
      const bool is_listed = listed_ && &part == listed_->parts.data();
      return Slot{sum.from + part.mode.at(is_listed ? list * listed_->inner + i : i), sum.place + i * part.shared / 8};
    };
    std::vector<Slot> slots = {{}};
    for (const SlotPart& of : of_slots_) add_digit(slots, of.count, [&](auto... at) { return add(*of.part, at...); });
    std::sort(slots.begin(), slots.end(), [&](const Slot& a, const Slot& b) { return key(a.from) < key(b.from); });
    return slots;
  }
  void take_slots() {
    for (int64_t list = 0; list < lists(); ++list)
      for (const Slot& s : slots_of(list))
        out_.slots.push_back({uint32_t(s.from.row), uint32_t(s.from.bit / 8), uint32_t(s.place)});
    plan_.slot_count = uint32_t(out_.slots.size() / size_t(lists()));
    for (const PlanSlot& s : out_.slots) plan_.column_bits |= s.byte;
    plan_.column_bits |= plan_.cols;
  }
  std::array<int64_t, 3> key(Step s) const {
    if (s.row >= matrix_.padded.n) return {INT64_MAX, s.row, s.bit};
    const RowSource source = matrix_.source(s.row);
    const bool in_turn = matrix_.views == 2 && matrix_.view[0].stride > matrix_.real.b;
    return {in_turn ? source.row * 2 + source.view : source.view * matrix_.padded.n + source.row, 0, s.bit};
  }

  /// A group's place in the packed matrix, in bytes, and its base in shared memory, in bits.
  struct GroupAt {
    int64_t to = 0, bit = 0;
  };
  static std::vector<GroupAt> groups_of(const Digits& digits) {
    return sums(digits, GroupAt(), [](const PlanDigit& d, int64_t i, GroupAt sum) {
      return GroupAt{sum.to + i * d.weight / 8, sum.bit + d.shared_at(i)};
    });
  }
  void take_groups() {
    for (const GroupAt& at : groups_of(of_groups_))
      out_.groups.push_back({uint32_t(at.to), uint32_t(at.bit / 8) | (at.bit % 8 ? PlanGroup::swapped : 0)});
    plan_.group_count = uint32_t(out_.groups.size());
  }

  /// Blocks that are near in the source follow one another.
  void take_blocks() {
    Digits digits = outer_;
    std::stable_sort(digits.begin(), digits.end(), [&](const PlanDigit* a, const PlanDigit* b) {
      return a->least_move(storage_.b * 8) < b->least_move(storage_.b * 8);
    });
    const auto add = [](const PlanDigit& d, int64_t i, PlanBlock sum) {
      const Step s = d.mode.at(i);
      return PlanBlock{uint32_t(sum.row + s.row), uint32_t(sum.byte + s.bit / 8), uint32_t(sum.to + i * d.weight / 8),
                       0};
    };
    for (int64_t list = 0; list < lists(); ++list)
      for (PlanBlock block : sums(digits, PlanBlock{}, add)) {
        block.slot = uint32_t(list) * plan_.slot_count;
        if (listed_) block.to += uint32_t(list * listed_->inner * listed_->weight / 8);
        plan_.column_bits |= block.byte;
        out_.blocks.push_back(block);
      }
    plan_.block_count = uint32_t(out_.blocks.size());
  }

  /// As many as leave the fewest without a group.
  void choose_threads() {
    const auto idle = [&](uint32_t threads) { return idle_threads(plan_.group_count, threads); };
    for (uint32_t threads = BlockPlan::most_threads; threads >= 128 && threads >= plan_.slot_count; threads -= 32)
      if (idle(threads) < idle(plan_.threads)) plan_.threads = threads;
    plan_.is_exchanged = plan_.is_planar() && plan_.part[1] == 16 && plan_.group_count % 32 == 0;
  }

  void take_copies() {
    const auto add = [](const PlanDigit& d, int64_t i, uint32_t sum) { return sum + uint32_t(i * d.weight / 8); };
    out_.copy = sums(copies_, uint32_t(0), add);
    plan_.copies = uint32_t(out_.copy.size());
  }

  const Shape storage_;
  const MutableMatrix& matrix_;
  HostPlan& out_;
  BlockPlan& plan_;
  std::vector<PlanDigit> digits_;
  Digits in_group_, of_groups_, outer_, copies_;
  struct SlotPart {
    PlanPart* part;
    int64_t count;
  };
  std::vector<SlotPart> of_slots_;
  const PlanDigit* listed_ = nullptr;  // the digit of which a block has a part of the values
  int64_t pitch_ = 0, extent_ = 0;
};

}  // namespace

void make_plan(const Layout& layout, Shape storage, const MutableMatrix& m, HostPlan& to) {
  const auto* given = std::get_if<ByModes>(&layout);
  if (given && !given->modes->repeats.empty())
    throw DeviceError("a GPU cannot pack a layout whose pads repeat values; use --device cpu");
  const int64_t unit_bits = given ? given->modes->unit * given->modes->grain : 0;
  Planner(modes_of(layout, storage), storage, unit_bits, m, to);
  to.plan.blocks = to.blocks.data();
  to.plan.slots = to.slots.data();
  to.plan.groups = to.groups.data();
  to.plan.copy = to.copy.data();
}

}  // namespace mxfp4
