#include <algorithm>

#include "kernels/pack/cuda/plan_words.h"

namespace mxfp4 {

namespace {

using Digits = std::vector<const PlanDigit*>;
using Lists = std::vector<TurnList>;

bool has(const Digits& digits, const PlanDigit* d) {
  return std::find(digits.begin(), digits.end(), d) != digits.end();
}

/// The digit of two values that moves by `bits` bits within slots.
const PlanDigit* column_of(const Digits& in_group, const Digits& of_groups, int64_t bits) {
  for (const Digits* digits : {&in_group, &of_groups})
    for (const PlanDigit* d : *digits)
      if (d->count() == 2 && d->parts.size() == 1 && d->parts[0].in_run && d->mode.at(1) == Step{0, bits} &&
          d->mode.at(0) == Step{})
        return d;
  return nullptr;
}

class Planes {
 public:
  Planes(const std::vector<int64_t>& bits, const Digits& in_group, const Digits& of_groups, BlockPlan& plan)
      : bits_(bits), of_groups_(of_groups), plan_(plan) {
    column_[0] = column_of(in_group, of_groups, 8);
    column_[1] = column_of(in_group, of_groups, 16);
    if (!column_[0] || !column_[1]) return;
    const bool inside[] = {has(in_group, column_[0]), has(in_group, column_[1])};
    const int64_t weight[] = {column_[0]->weight, column_[1]->weight};
    if (inside[0] && inside[1] && weight[0] == 32 && weight[1] == 64)
      found_ = take(PlanForm::in_group, 32, 2);
    else if (!inside[0] && !inside[1] && plan.form == PlanForm::words)
      found_ = take(PlanForm::across, 32, 0);
    else if (inside[0] && weight[0] == 64 && !inside[1])
      found_ = take(PlanForm::pairs, 64, 1);
  }

  Digits covered() const { return found_ ? covered_ : Digits(); }

 private:
  /// unit: stored bits that share lanes. more: digits that count the thread's groups, beside those of columns.
  bool take(PlanForm form, size_t unit, size_t more) {
    for (size_t t = 0; t < unit; ++t)
      if (const int64_t byte = bits_[t] / 8; std::find(lane_.begin(), lane_.end(), byte) == lane_.end())
        lane_.push_back(byte);
    if (lane_.size() != unit / 8 || !columns_are_neighbours(form, unit)) return false;
    for (const PlanDigit* d : column_)
      if (has(of_groups_, d)) covered_.push_back(d);
    for (size_t i = of_groups_.size(); i-- > 0 && more > 0;)
      if (const PlanDigit* d = of_groups_[i]; d->inner == 2 && d->count() == 2 && !has(covered_, d)) {
        covered_.push_back(d);
        --more;
      }
    if (more > 0 || !is_aligned(form)) return false;
    plan_.form = form;
    set_offsets(form);
    set_turns(unit);
    return true;
  }

  /// Whether the words of a group's other columns take the next bytes.
  bool columns_are_neighbours(PlanForm form, size_t unit) const {
    for (size_t t = 0; t < bits_.size(); ++t)
      if (form != PlanForm::across && bits_[t] != bits_[t % unit] + int64_t(t / unit * 8)) return false;
    return true;
  }

  /// Whether lanes begin at multiples of four bytes.
  bool is_aligned(PlanForm form) const {
    int64_t all = 0;
    for (const int64_t byte : lane_) all |= byte * 8;
    for (const int64_t bit : bits_) all |= form == PlanForm::across ? bit / 8 * 8 : 0;
    for (const PlanDigit* d : of_groups_)
      for (int64_t i = 0; i < d->inner; ++i) all |= d == column_[0] || d == column_[1] ? 0 : d->shared_at(i);
    return all % 32 == 0;
  }

  /// A thread's groups are counted by covered_, the first digit fastest.
  void set_offsets(PlanForm form) {
    const PlanDigit *low = covered_[0], *high = covered_[1];
    for (size_t j = 0; j < 4; ++j)
      plan_.part[j] = uint32_t((int64_t(j % 2) * low->weight + int64_t(j / 2) * high->weight) / 8);
    for (size_t u = 0; u < 4; ++u)
      for (size_t lane = 0; lane < lane_.size(); ++lane) {
        int64_t at = form == PlanForm::across ? byte_like(u, lane) : lane_[lane];
        if (form == PlanForm::in_group) at += (low->shared_at(int64_t(u % 2)) + high->shared_at(int64_t(u / 2))) / 8;
        if (form == PlanForm::pairs) at += high->shared_at(int64_t(u % 2)) / 8;
        plan_.offset[u][lane] = uint32_t(at);
      }
  }

  /// The byte of word q in the place of word 0's lane.
  int64_t byte_like(size_t q, size_t lane) const {
    for (size_t t = 0; t < 32; ++t)
      if (bits_[t] / 8 == lane_[lane]) return bits_[q * 32 + t] / 8;
    return 0;
  }

  void set_turns(size_t unit) {
    plan_.pack = plan_.unpack = {};
    const size_t lanes = lane_.size();
    Lists made(lanes * lanes), back(lanes * lanes);
    for (size_t t = 0; t < unit; ++t) {
      const auto lane = size_t(std::find(lane_.begin(), lane_.end(), bits_[t] / 8) - lane_.begin());
      const uint32_t from = uint32_t(bits_[t] % 8), to = uint32_t(t % 8);
      turn_of(made[t / 8 * lanes + lane], (from - to) & 31).mask |= 0x01010101u << to;
      turn_of(back[lane * lanes + t / 8], (to - from) & 31).mask |= 0x01010101u << from;
    }
    for (size_t i = 0; i < lanes * lanes; ++i) {
      add_list(made[i], plan_.pack);
      add_list(back[i], plan_.unpack);
    }
  }

  const std::vector<int64_t>& bits_;
  const Digits& of_groups_;
  BlockPlan& plan_;
  const PlanDigit* column_[2];
  std::vector<int64_t> lane_;  // the source bytes of the first unit
  Digits covered_;
  bool found_ = false;
};

}  // namespace

Digits find_planes(const std::vector<int64_t>& bits, const Digits& in_group, const Digits& of_groups, BlockPlan& plan) {
  return Planes(bits, in_group, of_groups, plan).covered();
}

}  // namespace mxfp4
