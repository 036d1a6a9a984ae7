#include "kernels/pack/cuda/plan_digits.h"

#include <algorithm>
#include <numeric>

#include "kernels/device_error.h"

namespace mxfp4 {

namespace {

constexpr int64_t block_bits = int64_t(16384) * 8, most_slots = 256;
constexpr int64_t slot_bits = 128 * 8, widest_slot_bits = 240 * 8;
constexpr int64_t stored_bits = 128 * 8;  // of a run in the packed matrix: a line of the cache

void add_primes(const Mode& m, int64_t weight, std::vector<PlanDigit>& digits) {
  int64_t count = m.count, first = 1;
  for (int64_t prime = 2; count > 1; ++prime) {
    if (prime * prime > count) prime = count;
    for (; count % prime == 0; count /= prime, first *= prime)
      digits.emplace_back(Mode{prime, {m.at(first)}}, weight * first);
  }
}

/// What a block has of the digits so far.
class Block {
 public:
  Block(std::vector<PlanDigit>& digits, int64_t half) : digits_(digits), half_(half) {}

  bool take(PlanDigit& d, int64_t inner = 0) {
    if (inner == 0) inner = d.count();
    if (d.in_block() || d.is_copy() || bits_ * inner > block_bits) return false;
    d.inner = inner;
    bits_ *= inner;
    const int64_t run = run_bits();
    if (bits_ / run <= most_slots * 8 / std::min<int64_t>(run, 8)) return true;
    d.inner = 0;
    bits_ /= inner;
    return false;
  }

  /// The digit that moves least within rows and may lengthen the slots, until these are long.
  void take_columns() {
    for (int64_t run = run_bits(); run < slot_bits; run = run_bits()) {
      PlanDigit* next = nullptr;
      for (PlanDigit& d : digits_)
        if (const int64_t step = d.column_step(); !d.in_block() && step > 0 && (!next || step < next->column_step()))
          next = &d;
      if (!next || next->column_step() > run) return;
      if (next->column_step() == run && !may_lengthen(run, next->count())) return;
      if (!take(*next)) return;
    }
  }

  void take_stored() {
    for (int64_t run = 1; PlanDigit & d : digits_) {
      if (run >= stored_bits || d.is_copy()) return;
      if (!d.in_block() && !take(d)) return;
      run *= d.count();
    }
  }

  void take_half() {
    for (PlanDigit& d : digits_)
      if (half_ > 0 && d.count() == 2 && d.mode.at(1) == Step{half_, 0}) take(d);
  }

  /// All that counts columns, if the block has room for it.
  void take_whole_rows() {
    int64_t all = bits_;
    for (const PlanDigit& d : digits_)
      if (!d.in_block() && d.column_step() > 0) all *= d.count();
    if (all > block_bits) return;
    for (PlanDigit& d : digits_)
      if (d.column_step() > 0) take(d);
  }

  void take_rest() {
    for (PlanDigit& d : digits_) take(d);
    for (PlanDigit& d : digits_) {
      if (d.in_block() || d.is_copy() || d.parts.size() > 1 || d.mode.is_even()) continue;
      for (int64_t inner = most_slots; inner > 1; --inner)
        if (d.count() % inner == 0 && take(d, inner)) return;  // one digit in parts: slots differ between them
    }
  }

  /// Bits of a slot: those that parts of the block count without a gap.
  int64_t run_bits() {
    int64_t run = 1;
    for (PlanPart* part = next_of(run); part; part = next_of(run)) run *= part->mode.count;
    return run;
  }
  int64_t mark_run() {
    int64_t run = 1;
    for (PlanPart* part = next_of(run); part; part = next_of(run)) {
      part->in_run = true;
      run *= part->mode.count;
    }
    return run;
  }

 private:
  /// A width with other factors than two may exceed a line of the cache.
  static bool may_lengthen(int64_t run, int64_t count) {
    return run * count <= (count == 2 || run >= slot_bits / 2 ? slot_bits : widest_slot_bits);
  }
  PlanPart* next_of(int64_t run) {
    for (PlanDigit& d : digits_)
      for (PlanPart& part : d.parts)
        if (d.in_block() && d.inner == d.count() && part.column_step() == run && may_lengthen(run, part.mode.count))
          return &part;
    return nullptr;
  }

  std::vector<PlanDigit>& digits_;
  const int64_t half_;
  int64_t bits_ = 1;
};

}  // namespace

void refuse_layout() {
  throw DeviceError("a GPU cannot pack a layout whose stored bytes are not fed alike; use --device cpu");
}

int64_t PlanPart::column_step() const {
  std::vector<int64_t> bits;
  for (int64_t d = 0; d < (mode.is_even() ? 2 : mode.count); ++d) {
    if (mode.at(d).row != 0) return 0;
    bits.push_back(mode.at(d).bit);
  }
  std::sort(bits.begin(), bits.end());
  for (size_t i = 0; i < bits.size(); ++i)
    if (bits[i] != int64_t(i) * bits[1]) return 0;
  return bits[1];
}

PlanDigit::PlanDigit(Mode given, int64_t weight_) : mode(std::move(given)), weight(weight_) {
  if (mode.is_even() || mode.count > 64 || mode.moves_nothing()) {
    parts = {{mode}};
    return;
  }
  std::vector<int64_t> order(size_t(mode.count));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int64_t i) { return std::pair(mode.at(i).row, mode.at(i).bit); };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  std::vector<Step> steps;
  rank.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    steps.push_back(mode.at(order[i]));
    rank[size_t(order[i])] = int64_t(i);
  }
  for (const Mode& m : factor(steps)) parts.push_back({m});
}

int64_t PlanDigit::shared_at(int64_t d) const {
  if (parts.size() == 1 && rank.empty()) return parts[0].shared_at(d);
  int64_t at = 0, left = rank[size_t(d)];
  for (const PlanPart& part : parts) {
    at += part.shared_at(left % part.mode.count);
    left /= part.mode.count;
  }
  return at;
}

int64_t PlanDigit::least_move(int64_t row_bits) const {
  int64_t least = INT64_MAX;
  for (const Step& s : mode.steps)
    if (const int64_t move = s.row * row_bits + s.bit) least = std::min(least, move);
  return least;
}

std::vector<PlanDigit> split_digits(const Modes& given, int64_t half) {
  Modes modes;
  for (const Mode& m : given) append(modes, m);
  std::vector<PlanDigit> digits;
  int64_t weight = 1;
  for (const Mode& m : modes) {
    const int64_t row = m.is_even() ? m.steps[0].row : 0, to_half = row > 0 && half % row == 0 ? half / row : 0;
    if (m.count > 1 && !m.is_even() && !m.moves_nothing()) {
      digits.emplace_back(m, weight);
    } else if (m.steps[0].bit == 0 && to_half > 0 && to_half < m.count && m.count % to_half == 0) {
      add_primes({to_half, m.steps}, weight, digits);
      add_primes({m.count / to_half, {m.at(to_half)}}, weight * to_half, digits);
    } else {
      add_primes({m.count, {m.steps[0]}}, weight, digits);
    }
    weight *= m.count;
  }
  return digits;
}

GroupSize group_size(const std::vector<PlanDigit>& digits, int64_t unit_bits) {
  GroupSize size{0, 0};
  int64_t bits = 1;
  for (size_t i = 0; i < digits.size() && bits < 128; ++i) {
    if (digits[i].is_copy() && bits >= unit_bits) break;
    bits *= digits[i].count();
    for (const int bytes : {1, 4, 16})
      if (bits == bytes * 8) size = {bytes, i + 1};
  }
  if (size.bytes == 0) refuse_layout();
  return size;
}

int64_t choose_block(std::vector<PlanDigit>& digits, size_t in_group, bool has_links, int64_t half) {
  Block block(digits, half);
  for (size_t i = 0; i < digits.size(); ++i) {
    bool needed = i < in_group;
    for (const PlanPart& part : digits[i].parts) needed |= part.column_step() % 8 != 0;
    if (needed && !digits[i].is_copy() && !block.take(digits[i])) refuse_layout();
  }
  block.take_columns();
  block.take_half();
  block.take_stored();
  if (has_links) block.take_whole_rows();
  block.take_rest();
  const int64_t run = block.mark_run();
  if (run % 8) refuse_layout();
  return run;
}

}  // namespace mxfp4
