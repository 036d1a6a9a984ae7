// Runs a route (route.h) for a strip with a driver's vectors. Each driver compiles its own copy, with a V of its own
// file:
//
//     struct V {
//       using Vector, Split;
//       static constexpr VectorForm form;
//       load(bytes), store(bytes, vector)
//       past(bytes, vector)                 a store past the caches, at a multiple of the vector's bytes
//       end_past()                          after such stores
//       join(bytes, step, pieces), part(bytes, step, pieces, vector)    load and store in pieces of 16 or 32 bytes, if
//                                           a vector is longer; bit i of a piece's number moves it by step[i]
//       exchange<lane>(a, b)                exchanges a bit of the lane with the choice of vector: a[i + bit] and b[i].
//                                           lane 0: the nibble, 1: bit 0 of the byte, ..
//       sorted(vector, index)               byte i is byte index[i]
//       swapped(vector)                     the two highest bits of the lane exchanged
//       zip<lane>(a, b), unzip<lane>(a, b)  see Route::Code; Shuffles has both
//       StraightSteps                       optional: the steps that straight code runs, each a Steps
//       split(vector), has<kind>, add<kind>(sum, split, term)    of a Route::Term
//     };
//
// `form` says which of these a V needs.
#pragma once

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/pack/cpu/straight.h"

namespace mxfp4 {

namespace {

/// Calls use with each of 0 to n - 1, as constants.
template <int n, class Use>
[[gnu::always_inline]] inline void unrolled(Use use) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (use(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, n>());
}

/// Word i of the first and of the second vector that an exchange, a zip or an unzip makes of two: its number in both.
constexpr int exchanged(int i, int words, bool second) { return (second ? i | 1 : i / 2 * 2) + i % 2 * words; }
constexpr int zipped(int i, int words, bool second) { return i / 2 + i % 2 * words + second * words / 2; }
constexpr int unzipped(int i, int, bool second) { return i * 2 + second; }

/// Moves of two vectors of bytes, for which a compiler finds instructions.
template <class Bytes, int bytes>
struct Shuffles {
  template <auto number, int lane>
  [[gnu::always_inline]] static void shuffle(Bytes& a, Bytes& b) {
    using Word = std::tuple_element_t<lane - 1, std::tuple<uint8_t, uint16_t, uint32_t, uint64_t>>;
    using Words [[gnu::vector_size(bytes)]] = Word;
    constexpr int words = bytes >> (lane - 1);
    [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
      const Words x = Words(a), y = Words(b);
      a = Bytes(__builtin_shufflevector(x, y, number(i, words, false)...));
      b = Bytes(__builtin_shufflevector(x, y, number(i, words, true)...));
    }
    (std::make_integer_sequence<int, words>());
  }
  template <int lane>
  [[gnu::always_inline]] static void zip(Bytes& a, Bytes& b) {
    shuffle<zipped, lane>(a, b);
  }
  template <int lane>
  [[gnu::always_inline]] static void unzip(Bytes& a, Bytes& b) {
    shuffle<unzipped, lane>(a, b);
  }
};

/// Exchanges, zips or unzips vectors i and i + (1 << slot) of 1 << slots.
template <class V, int slots, int code>
[[gnu::always_inline]] inline void move(typename V::Vector (&x)[1 << slots]) {
  constexpr int slot = code % Route::most_slots, lane = code % Route::zip / Route::most_slots;
  constexpr bool exists = code < Route::zip
                              ? lane <= V::form.lane_bits
                              : lane > 0 && lane < V::form.lane_bits && (code < Route::unzip || V::form.unzip > 0);
  if constexpr (slot < slots && exists)
    unrolled<1 << slots>([&](auto i) __attribute__((always_inline)) {
      if constexpr ((i >> slot & 1) == 0) {
        auto &a = x[i], &b = x[i + (1 << slot)];
        if constexpr (code < Route::zip)
          V::template exchange<lane>(a, b);
        else if constexpr (code < Route::unzip)
          V::template zip<lane>(a, b);
        else
          V::template unzip<lane>(a, b);
      }
    });
}

/// Adds to a plane of some words what their planes x give. The term is of one of the kinds from `first` to `end`.
template <class V, int first, int end, int planes, int words>
[[gnu::always_inline]] inline void add_term(const typename V::Split (&x)[words][planes],
                                            typename V::Vector (&sums)[words], const Route::Term& term) {
  const auto add = [&](auto code) __attribute__((always_inline)) {
    if constexpr (!V::template has<code / planes>) __builtin_unreachable();
    unrolled<words>([&](auto w) __attribute__((always_inline)) {
      sums[w] = V::template add<code / planes>(sums[w], x[w][code % planes], term);
    });
    return true;
  };
  const int code = term.code;
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    if (!((code == i + first * planes && add(std::integral_constant<int, i + first * planes>())) || ...))
      __builtin_unreachable();
  }
  (std::make_integer_sequence<int, (end - first) * planes>());
}

template <class V, int slots, int bits>
[[gnu::always_inline]] inline void mix(typename V::Vector (&x)[1 << slots], const Route::Term* term) {
  if constexpr (bits <= slots) {
    constexpr int planes = 1 << bits, words = 1 << (slots - bits);
    typename V::Split from[words][planes];
    unrolled<1 << slots>([&](auto i) __attribute__((always_inline)) { from[i / planes][i % planes] = V::split(x[i]); });
    unrolled<planes>([&](auto to) __attribute__((always_inline)) {
      typename V::Vector sums[words];
      add_term<V, 0, Route::shift>(from, sums, *term);
      while (!term++->last) add_term<V, Route::shift, Route::kinds>(from, sums, *term);
      unrolled<words>([&](auto w) __attribute__((always_inline)) { x[w * planes + to] = sums[w]; });
    });
  }
}

/// One jump to a step's code. The compiler makes a table of the jumps to moves. Passes that mix no planes have code of
/// their own, which is faster.
template <class V, int slots, bool mixes>
[[gnu::always_inline]] inline void run_step(const Route::Step& step, typename V::Vector (&x)[1 << slots]) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (void)((step.code == i && (move<V, slots, i>(x), true)) || ...);
  }
  (std::make_integer_sequence < int, V::form.zip ? Route::sort : Route::most_slots*(V::form.lane_bits + 1) > ());
  constexpr int none = mixes ? 0 : 8;  // more than any group has
  switch (step.code) {
    case Route::sort:
      if constexpr (V::form.sorts()) unrolled<1 << slots>([&](auto i) { x[i] = V::sorted(x[i], step.index.data()); });
      return;
    case Route::swap:
      if constexpr (V::form.swaps()) unrolled<1 << slots>([&](auto i) { x[i] = V::swapped(x[i]); });
      return;
    case Route::mix_1:
      return mix<V, slots, none>(x, step.terms.data());
    case Route::mix_2:
      return mix<V, slots, none + 1>(x, step.terms.data());
    case Route::mix_4:
      return mix<V, slots, none + 2>(x, step.terms.data());
    case Route::mix_8:
      return mix<V, slots, none + 3>(x, step.terms.data());
  }
}

/// Makes planes of a word by a mix's terms. Those of S begin at `at`; `to` is the plane before.
template <class V, class S, size_t at, int to, int planes>
[[gnu::always_inline]] inline void make_planes(const typename V::Split (&from)[planes], typename V::Vector* x,
                                               const Route::Term* term) {
  if constexpr (at < S::code.size() && S::code[at] >= first_term) {
    constexpr int code = S::code[at] - first_term, kind = code / planes, now = to + (kind < Route::shift);
    x[now] = V::template add<kind>(x[now], from[code % planes], *term);
    make_planes<V, S, at + 1, now>(from, x, term + 1);
  }
}

/// Runs the steps that S says (straight.h), from code `at` on.
template <class V, int slots, class S, size_t at = 0>
[[gnu::always_inline]] inline void run_straight(const Route::Step* step, typename V::Vector (&x)[1 << slots]) {
  if constexpr (at < S::code.size()) {
    constexpr int code = S::code[at];
    if constexpr (code < Route::sort) {
      move<V, slots, code>(x);
    } else if constexpr (code == Route::sort) {
      unrolled<1 << slots>([&](auto i) __attribute__((always_inline)) { x[i] = V::sorted(x[i], step->index.data()); });
    } else if constexpr (code < first_term) {
      constexpr int planes = 1 << (code - Route::mix_1);
      unrolled<(1 << slots) / planes>([&](auto w) __attribute__((always_inline)) {
        typename V::Split from[planes];
        unrolled<planes>([&](auto i) __attribute__((always_inline)) { from[i] = V::split(x[w * planes + i]); });
        make_planes<V, S, at + 1, -1>(from, x + w * planes, step->terms.data());
      });
    }
    run_straight<V, slots, S, at + 1>(step + (code < first_term), x);
  }
}

/// The memory that a pass reads and writes.
struct Sides {
  const uint8_t* from;
  uint8_t* to;
  const uint8_t* ahead;  // of the block whose lines are asked for; null: none
  const int64_t* lines;  // of the block, each group's after one another
  int64_t group_lines;
  bool past;  // stores bypass the caches
};

/// Calls use(vector's number, its address) for each vector of a group, in the order of the number's reversed bits.
/// Vectors that differ in the last bit are next to each other in memory.
template <int slots, int bit = 0, int v = 0, class Byte, class Slots, class Use>
[[gnu::always_inline]] inline void each_vector(Byte* at, const Slots& slot, Use use) {
  if constexpr (bit == slots) {
    use(std::integral_constant<int, v>(), at);
  } else {
    each_vector<slots, bit + 1, v>(at, slot, use);
    each_vector<slots, bit + 1, v + (1 << bit)>(at + slot[bit], slot, use);
  }
}

/// S: the Steps of the pass; void: any.
template <class V, int slots, bool mixes, class S = void>
void run_pass(const Route::Pass& pass, Sides s) {
  const Route::Places &from = pass.from, &to = pass.to;
  const auto from_slot = from.slot, to_slot = to.slot;
  const Route::Step *const begin = pass.steps.data(), *const end = begin + pass.steps.size();
  const int64_t *from_group = from.groups.data(),
                *to_group = to.groups.data(), *const last = from_group + from.groups.size();
  constexpr bool has_pieces = V::form.bytes() > V::form.least_load();
  const bool whole = !has_pieces || from.pieces == 1, wholly = !has_pieces || to.pieces == 1;
  for (; from_group != last; ++from_group, ++to_group) {
    if (s.ahead)
      for (int64_t i = 0; i < s.group_lines; ++i) __builtin_prefetch(s.ahead + *s.lines++);
    typename V::Vector x[1 << slots];
    if (whole)
      each_vector<slots>(
          s.from + *from_group,
          from_slot, [&](auto v, const uint8_t* at) __attribute__((always_inline)) { x[v] = V::load(at); });
    else if constexpr (has_pieces)
      each_vector<slots>(
          s.from + *from_group, from_slot, [&](auto v, const uint8_t* at) __attribute__((always_inline)) {
            x[v] = V::join(at, from.piece.data(), from.pieces);
          });
    if constexpr (std::is_void_v<S>)
      for (const Route::Step* step = begin; step != end; ++step) run_step<V, slots, mixes>(*step, x);
    else
      run_straight<V, slots, S>(begin, x);
    if constexpr (V::form.passes_caches)
      if (s.past) {
        each_vector<slots>(
            s.to + *to_group, to_slot, [&](auto v, uint8_t* at) __attribute__((always_inline)) { V::past(at, x[v]); });
        continue;
      }
    if (wholly)
      each_vector<slots>(
          s.to + *to_group, to_slot, [&](auto v, uint8_t* at) __attribute__((always_inline)) { V::store(at, x[v]); });
    else if constexpr (has_pieces)
      each_vector<slots>(
          s.to + *to_group, to_slot, [&](auto v, uint8_t* at) __attribute__((always_inline)) {
            V::part(at, to.piece.data(), to.pieces, x[v]);
          });
  }
}

using RunPass = void (*)(const Route::Pass& pass, Sides sides);

/// The straight code of a pass, or null.
template <class V>
RunPass straight_code([[maybe_unused]] const Route::Pass& pass) {
  RunPass run = nullptr;
  if constexpr (requires { typename V::StraightSteps; }) {
    constexpr int slots = V::form.slots;
    const auto find = [&, codes = codes_of(pass)]<class... S>(std::tuple<S...>*) {
      ((pass.slots == slots && std::ranges::equal(codes, S::code) && (run = run_pass<V, slots, false, S>)), ...);
    };
    find(static_cast<typename V::StraightSteps*>(nullptr));
  }
  return run;
}

template <class V>
void run_pass(const Route::Pass& pass, const Sides& sides) {
  unrolled<V::form.mixing_slots + 1>([&](auto slots) {
    if (pass.slots == slots)
      pass.mixes ? run_pass<V, slots, true>(pass, sides) : run_pass<V, slots, false>(pass, sides);
  });
}

/// Copies pieces that are shorter than any load: use(in the block, in memory, bytes as a constant).
template <class Copy>
void each_piece(const Route::Pieces& pieces, Copy copy) {
  const auto all = [&](auto bytes) {
    for (size_t i = 0; i < pieces.at.size(); ++i) copy(int64_t(i) * bytes, pieces.at[i], bytes);
  };
  unrolled<3>([&](auto i) {
    if (pieces.bytes == 4 << i) all(std::integral_constant<int, 4 << i>());
  });
}

constexpr int ahead_bytes = 4096;

template <class V>
void run_route(const Route& p, const uint8_t* from, uint8_t* to, bool past) {
  alignas(64) uint8_t first[Route::most_bytes], second[Route::most_bytes];
  past = past && p.past_caches && reinterpret_cast<uintptr_t>(to) % 64 == 0;
  const bool gathers = !p.from.at.empty(), scatters = !p.to.at.empty();
  const size_t last = p.passes.size() - 1, far = size_t(ahead_bytes / p.bytes);
  const RunPass straight = p.passes.size() == 1 ? straight_code<V>(p.passes[0]) : nullptr;
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    const Route::Block& b = p.blocks[i];
    if (gathers)
      each_piece(p.from, [&](int64_t at, int64_t place, auto n) { std::memcpy(first + at, from + b.from + place, n); });
    for (size_t k = 0; k <= last; ++k) {
      Sides sides{first, k == last ? second : first, nullptr, p.lines.data(), p.group_lines, false};
      if (k == 0 && !gathers) {
        sides.from = from + b.from;
        if (i + far < p.blocks.size() && !(p.shared_lines && p.blocks[i + far].from % 64))
          sides.ahead = from + p.blocks[i + far].from;
      }
      if (k == last && !scatters) {
        sides.to = to + b.to;
        sides.past = past;
      }
      straight ? straight(p.passes[k], sides) : run_pass<V>(p.passes[k], sides);
    }
    if (scatters)
      each_piece(p.to, [&](int64_t at, int64_t place, auto n) { std::memcpy(to + b.to + place, second + at, n); });
  }
  if constexpr (V::form.passes_caches)
    if (past) V::end_past();
}

}  // namespace

}  // namespace mxfp4
