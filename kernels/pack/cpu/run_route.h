// Runs a route (route.h) for a strip with a driver's vectors. Each driver compiles its own copy, with a V of its own
// file:
//
//     struct V {
//       using Vector, Split;
//       static constexpr VectorForm form;
//       load(bytes), store(bytes, vector)
//       past(bytes, vector)                 a store past the caches, at a multiple of the vector's bytes
//       end_past()                          after such stores
//       join(bytes, at, pieces), part(bytes, at, pieces, vector)    load and store in pieces of 16 or 32 bytes
//       with_exchange(lane, use)            use(exchange): exchange(a, b) exchanges a bit of the lane with the choice
//       of
//                                           vector: a[i + bit] and b[i]. lane 0: the nibble, 1: bit 0 of the byte, ..
//       sorted(vector, index)               byte i is byte index[i]
//       swapped(vector)                     the two highest bits of the lane exchanged, if `form` needs it
//       split(vector), add(sum, split, term)    sum + term * vector, of each byte
//     };
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/pack/cpu/route.h"

namespace mxfp4 {

namespace {

/// Asks for the lines of a strip's rows, some with each block: a processor waits for few lines at a time.
class StripAhead {
 public:
  StripAhead(const Rows& rows, int64_t width) : rows_(rows), width_(width) {}
  void ask(int lines) {
    for (int i = 0; rows_.data && i < lines; ++i) {
      __builtin_prefetch(rows_.data + at_, 0, 2);
      at_ += 64;
      if (at_ >= width_) {
        rows_.data += rows_.stride;
        at_ -= width_;
      }
    }
  }

 private:
  Rows rows_;
  int64_t width_, at_ = 0;
};

/// Calls use with each of 0 to n - 1, as constants.
template <int n, class Use>
[[gnu::always_inline]] inline void unrolled(Use use) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (use(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, n>());
}

/// Memory that a pass reads or writes. Members have 8 bytes each, since a copy of smaller ones would wait for them.
struct Side {
  uint8_t* bytes;
  const int64_t* at;
  int64_t pieces = 1;  // of a vector
  int64_t past = 0;    // stores bypass the caches
  int64_t ahead = 0;   // the distance of bytes to prefetch
};

template <class V>
[[gnu::always_inline]] inline typename V::Vector load(const Side& from, int i) {
  if (from.ahead) __builtin_prefetch(from.bytes + from.ahead + from.at[i * from.pieces]);
  return from.pieces == 1 ? V::load(from.bytes + from.at[i])
                          : V::join(from.bytes, from.at + i * from.pieces, from.pieces);
}

template <class V>
[[gnu::always_inline]] inline void store(const Side& to, int i, typename V::Vector x) {
  if (to.past)
    V::past(to.bytes + to.at[i], x);
  else if (to.pieces == 1)
    V::store(to.bytes + to.at[i], x);
  else
    V::part(to.bytes, to.at + i * to.pieces, to.pieces, x);
}

/// Vectors i and i + (1 << slot) of 1 << slots.
template <class V, int slots, int slot>
[[gnu::always_inline]] inline void exchange(typename V::Vector (&x)[1 << slots], int lane) {
  if constexpr (slot < slots)
    V::with_exchange(
        lane, [&](auto exchange) __attribute__((always_inline)) {
          unrolled<1 << slots>([&](auto i) __attribute__((always_inline)) {
            if constexpr ((i >> slot & 1) == 0) exchange(x[i], x[i + (1 << slot)]);
          });
        });
}

template <class V, int slots, int bits>
[[gnu::always_inline]] inline void mix(typename V::Vector (&x)[1 << slots], const Route::Term* terms) {
  constexpr int planes = 1 << bits;
  if constexpr (bits <= slots)
    unrolled<1 << (slots - bits)>([&](auto group) __attribute__((always_inline)) {
      constexpr int first = group * planes;
      typename V::Split from[planes];
      unrolled<planes>([&](auto i) __attribute__((always_inline)) { from[i] = V::split(x[first + i]); });
      unrolled<planes>([&](auto to) __attribute__((always_inline)) {
        typename V::Vector sum = {};
        unrolled<planes>([&](auto i) __attribute__((always_inline)) {
          if (const Route::Term& term = terms[to * planes + i]; term.used) sum = V::add(sum, from[i], term);
        });
        x[first + to] = sum;
      });
    });
}

template <class V, int slots>
[[gnu::always_inline]] inline void run_step(const Route::Step& step, typename V::Vector (&x)[1 << slots]) {
  switch (step.kind) {
    case Route::exchange_0:
      return exchange<V, slots, 0>(x, step.lane);
    case Route::exchange_1:
      return exchange<V, slots, 1>(x, step.lane);
    case Route::exchange_2:
      return exchange<V, slots, 2>(x, step.lane);
    case Route::sort:
      return unrolled<1 << slots>([&](auto i) { x[i] = V::sorted(x[i], step.index.data()); });
    case Route::swap:
      return unrolled<1 << slots>([&](auto i) { x[i] = V::swapped(x[i]); });
    case Route::mix_1:
      return mix<V, slots, 0>(x, step.terms.data());
    case Route::mix_2:
      return mix<V, slots, 1>(x, step.terms.data());
    case Route::mix_4:
      return mix<V, slots, 2>(x, step.terms.data());
    case Route::mix_8:
      return mix<V, slots, 3>(x, step.terms.data());
  }
}

template <class V, int slots>
void run_pass(int vectors, const Route::Pass& pass, Side from, Side to) {
  const int mask = pass.mask;
  const Route::Step *const begin = pass.steps.data(), *const end = begin + pass.steps.size();
  for (int i = 0; i < vectors; i = ((i | mask) + 1) & ~mask) {
    typename V::Vector x[1 << slots];
    unrolled<1 << slots>([&](auto v) { x[v] = load<V>(from, i + pass.at[v]); });
    for (const Route::Step* step = begin; step != end; ++step) run_step<V, slots>(*step, x);
    unrolled<1 << slots>([&](auto v) {  // in the order of their reversed bits
      constexpr int at = slots < 2 ? v : slots == 2 ? v / 2 + v % 2 * 2 : v / 4 + v / 2 % 2 * 2 + v % 2 * 4;
      store<V>(to, i + pass.at[at], x[at]);
    });
  }
}

template <class V>
void run_pass(const Route& p, const Route::Pass& pass, Side from, Side to) {
  const int vectors = p.bytes / V::form.bytes();
  switch (pass.slots) {
    case 0:
      return run_pass<V, 0>(vectors, pass, from, to);
    case 1:
      return run_pass<V, 1>(vectors, pass, from, to);
    case 2:
      return run_pass<V, 2>(vectors, pass, from, to);
    default:
      return run_pass<V, 3>(vectors, pass, from, to);
  }
}

/// Copies pieces that are shorter than any load: use(in the block, in memory, bytes as a constant).
template <class Copy>
void each_piece(const Route::Pieces& pieces, Copy copy) {
  const auto all = [&](auto bytes) {
    for (size_t i = 0; i < pieces.at.size(); ++i) copy(int64_t(i) * bytes, pieces.at[i], bytes);
  };
  if (pieces.bytes == 4)
    all(std::integral_constant<int, 4>());
  else
    all(std::integral_constant<int, 8>());
}

constexpr int least_load = 16;
constexpr int ahead_bytes = 4096;

template <class V>
void run_route(const Route& p, const uint8_t* from, uint8_t* to, bool past, const Rows& next) {
  alignas(64) uint8_t first[Route::most_bytes], second[Route::most_bytes];
  past = past && p.past_caches && reinterpret_cast<uintptr_t>(to) % 64 == 0;
  const bool gathers = p.from.bytes < least_load, scatters = p.to.bytes < least_load;
  const size_t last = p.passes.size() - 1, far = size_t(ahead_bytes / p.bytes);
  StripAhead ahead(next, p.row);
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    const Route::Block& b = p.blocks[i];
    ahead.ask(next.data ? p.bytes / 64 : 0);
    Side source{first, p.inner.at.data()}, inner = source, target{second, p.inner.at.data()};
    if (gathers)
      each_piece(p.from, [&](int64_t at, int64_t place, auto n) { std::memcpy(first + at, from + b.from + place, n); });
    else  // nothing is stored there
      source = {const_cast<uint8_t*>(from) + b.from, p.from.at.data(), V::form.bytes() / p.from.bytes, 0,
                i + far < p.blocks.size() ? p.blocks[i + far].from - b.from : 0};
    if (!scatters) target = {to + b.to, p.to.at.data(), V::form.bytes() / p.to.bytes, past};
    for (size_t k = 0; k <= last; ++k) run_pass<V>(p, p.passes[k], k == 0 ? source : inner, k == last ? target : inner);
    if (scatters)
      each_piece(p.to, [&](int64_t at, int64_t place, auto n) { std::memcpy(to + b.to + place, second + at, n); });
  }
  if (past) V::end_past();
}

}  // namespace

}  // namespace mxfp4
