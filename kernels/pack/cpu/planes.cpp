// How bits move between the planes of a unit's bytes (route.h).
#include <limits>
#include <map>
#include <numeric>

#include "kernels/pack/cpu/route_parts.h"

namespace mxfp4 {

namespace {

/// A term of these bits, which come from one plane.
Route::Term term_of(int kind, const List& bits, Mixing how) {
  Route::Term term;
  uint8_t mask = 0;
  for (const Bit& b : bits) {
    const auto from = uint8_t(b.from % 8), to = uint8_t(b.to % 8), bit = uint8_t(1 << to);
    mask |= bit;
    if (how == Mixing::matrices)
      for (const size_t half : {0, 8}) term.by[half + 7 - to] |= uint8_t(1 << from);
    else if (kind < Route::low)
      term.by.fill(uint8_t(to - from));
    else
      for (size_t x = 0; x < 16; ++x) term.by[x] |= x >> from % 4 & 1 ? bit : uint8_t(0);
  }
  term.code = kind;
  term.bits.fill(mask);
  return term;
}

/// The terms of the bits that one plane gives to another.
std::vector<Route::Term> terms_of(const List& bits, Mixing how) {
  std::map<int64_t, List> shifted, halves;
  for (const Bit& b : bits) {
    shifted[how == Mixing::matrices ? 0 : b.to % 8 - b.from % 8].push_back(b);
    halves[b.from % 8 / 4].push_back(b);
  }
  // A shift takes two instructions unless bits stay at their places, a table three.
  const size_t cost = shifted.size() * 2 - shifted.count(0);
  const bool shifts = how == Mixing::tables ? false : how != Mixing::cheapest || cost <= halves.size() * 3;
  std::vector<Route::Term> terms;
  for (const auto& [key, part] : shifts ? shifted : halves) {
    const int shift = key || how == Mixing::matrices ? Route::shift : Route::still;
    terms.push_back(term_of(shifts ? shift : key ? Route::high : Route::low, part, how));
  }
  return terms;
}

/// The terms of a plane in the order with the least cost on NEON: a load counts 1, an operation 2. A shift becomes left
/// or right if later terms give all other bits that it changes. Adds the cost to `sum`.
std::vector<Route::Term> in_cheapest_order(const std::vector<Route::Term>& terms, int planes, int& sum) {
  constexpr int first[] = {3, 2, 5, 13}, other[] = {6, 3, 8, 8}, insert = 2;  // from Route::shift on
  std::vector<size_t> order(terms.size());
  std::iota(order.begin(), order.end(), size_t(0));
  int least = std::numeric_limits<int>::max();
  std::vector<Route::Term> best, made(terms.size());
  do {
    int later = 0, cost = 0;
    for (size_t i = terms.size(); i-- > 0; later |= made[i].bits[0]) {
      Route::Term& t = made[i] = terms[order[i]];
      const int kind = t.code / planes, by = int8_t(t.by[0]), changed = by > 0 ? 0xFF << by & 0xFF : 0xFF >> -by;
      const bool inserts = i > 0 && kind == Route::shift && (changed & ~t.bits[0] & ~later) == 0;
      if (inserts) t.code += ((by > 0 ? Route::left + by : Route::right - by) - 1 - Route::shift) * planes;
      cost += inserts ? insert : (i > 0 ? other : first)[kind - Route::shift];
    }
    if (cost < least) least = cost, best = made;
  } while (std::next_permutation(order.begin(), order.end()));
  sum += least;
  return best;
}

Route::Step mixed(const List& mixing, int planes, Mixing how, int& cost) {
  Route::Step step;
  for (step.code = Route::mix_1; 1 << (step.code - Route::mix_1) < planes;) ++step.code;
  for (int to = 0; to < planes; ++to) {
    std::vector<Route::Term> all;
    for (int from = 0; from < planes; ++from) {
      List bits;
      std::copy_if(mixing.begin(), mixing.end(), std::back_inserter(bits),
                   [&](const Bit& b) { return b.from / 8 == from && b.to / 8 == to; });
      for (Route::Term& term : terms_of(bits, how)) {
        term.code = term.code * planes + from;
        all.push_back(term);
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [&](const Route::Term& a, const Route::Term& b) { return a.code / planes < b.code / planes; });
    if (how == Mixing::cheapest) all = in_cheapest_order(all, planes, cost);
    // The first term makes the plane: it may give any bits that others overwrite.
    if (all[0].code / planes == Route::high)
      all.insert(all.begin(), {.code = Route::begin_low * planes});
    else
      all[0].code -= (Route::shift - Route::begin) * planes;
    all.back().last = true;
    step.terms.insert(step.terms.end(), all.begin(), all.end());
  }
  return step;
}

}  // namespace

std::vector<Route::Step> mixed(const List& mixing, int planes, Mixing how) {
  int least = 0;
  std::vector<Route::Step> best = {mixed(mixing, planes, how, least)};
  for (int slot = 0; how == Mixing::cheapest && 2 << slot <= planes; ++slot)
    for (const bool first : {true, false}) {
      List rest = mixing;
      for (Bit& b : rest) {
        int64_t& bit = first ? b.from : b.to;
        if ((bit >> 2 & 1) != (bit >> (3 + slot) & 1)) bit ^= 4 | 8 << slot;
      }
      int cost = 3 * planes;  // of the exchange
      const Route::Step step = mixed(rest, planes, how, cost), exchange = {.code = slot};
      if (cost < least) least = cost, best = first ? std::vector{exchange, step} : std::vector{step, exchange};
    }
  return best;
}

}  // namespace mxfp4
