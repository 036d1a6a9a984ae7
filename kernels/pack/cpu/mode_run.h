// Runs a plan (mode_plan.h) for a strip with a driver's vectors, one pass over a block after the other. Each driver
// compiles its own copy, with a V of its own file:
//
//     struct V {
//       using Vector, Index, Matrix;
//       static constexpr VectorForm form;
//       load(bytes), store(bytes, vector)
//       index(index[0] or index[1] of a Shuffle)
//       choose(first, second, index)            the bytes of both that an Index says
//       matrix(term), add(sum, vector, matrix)  sum + matrix * vector, of each byte
//       past(bytes, vector)                     a store past the caches, at a multiple of the vector's bytes
//       copy_past<bytes>(to, from)              a copy past the caches of 16, 32 or 64 bytes, to such a multiple
//     };
#pragma once

#include <xmmintrin.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/pack/cpu/mode_plan.h"
#include "kernels/pack/cpu/strip.h"

namespace mxfp4 {

namespace {

/// A block's vectors: number i at bytes + at[i].
template <class V>
struct Vectors {
  uint8_t* bytes;
  const int64_t* at;
  bool past = false;  // stores bypass the caches
  typename V::Vector load(int i) const { return V::load(bytes + at[i]); }
  void store(int i, typename V::Vector x) const {
    if (past)
      V::past(bytes + at[i], x);
    else
      V::store(bytes + at[i], x);
  }
};

/// Calls use(i) for each vector whose number has none of the bits `without`.
template <class V, class Use>
void each_vector(const ModePlan& p, int without, Use use) {
  for (int i = 0; i < p.bytes >> V::form.bits(); i = ((i | without) + 1) & ~without) use(i);
}

template <class V>
struct Exchange {
  decltype(V::index({})) first, second;
  explicit Exchange(const ModePlan::Shuffle& s) : first(V::index(s.index[0])), second(V::index(s.index[1])) {}
  void operator()(typename V::Vector& a, typename V::Vector& b) const {
    const auto x = V::choose(a, b, first);
    b = V::choose(a, b, second);
    a = x;
  }
};

template <class V>
void shuffle_once(const ModePlan& p, const ModePlan::Shuffle& s, Vectors<V> from, Vectors<V> to) {
  const Exchange<V> exchange(s);
  each_vector<V>(p, s.apart, [&](int i) {
    auto a = from.load(i), b = from.load(i + s.apart);
    exchange(a, b);
    to.store(i + s.apart, b);
    to.store(i, a);
  });
}

/// Runs two shuffles at once, with half the loads and stores.
template <class V>
void shuffle_twice(const ModePlan& p, const ModePlan::Shuffle* s, Vectors<V> from, Vectors<V> to) {
  const Exchange<V> one(s[0]), other(s[1]);
  const int x = s[0].apart, y = s[1].apart;
  each_vector<V>(p, x | y, [&](int i) {
    auto a = from.load(i), b = from.load(i + x), c = from.load(i + y), d = from.load(i + x + y);
    one(a, b);
    one(c, d);
    other(a, c);
    other(b, d);
    to.store(i, a);
    to.store(i + x, b);
    to.store(i + y, c);
    to.store(i + x + y, d);
  });
}

/// Through `block`, if there are more than two.
template <class V>
void shuffle_all(const ModePlan& p, const std::vector<ModePlan::Shuffle>& s, Vectors<V> from, Vectors<V> block,
                 Vectors<V> to) {
  if (s.empty()) return each_vector<V>(p, 0, [&](int i) { to.store(i, from.load(i)); });
  for (size_t i = 0; i < s.size(); i += 2, from = block) {
    const Vectors<V> target = i + 2 < s.size() ? block : to;
    if (i + 1 < s.size())
      shuffle_twice<V>(p, &s[i], from, target);
    else
      shuffle_once<V>(p, s[i], from, target);
  }
}

template <class V>
void mix_planes(const ModePlan& p, Vectors<V> from, Vectors<V> to) {
  for (const ModePlan::Plane& plane : p.planes)
    each_vector<V>(p, p.plane_bits, [&](int i) {
      typename V::Vector sum = {};
      for (const ModePlan::Term& term : plane.terms) sum = V::add(sum, from.load(i + term.from), V::matrix(term));
      to.store(i + plane.to, sum);
    });
}

/// use(how many bytes a piece has, as a constant).
template <class Use>
void with_bytes(int bytes, Use use) {
  switch (bytes) {
    case 4:
      return use(std::integral_constant<int, 4>());
    case 8:
      return use(std::integral_constant<int, 8>());
    case 16:
      return use(std::integral_constant<int, 16>());
    case 32:
      return use(std::integral_constant<int, 32>());
    default:
      return use(std::integral_constant<int, 64>());
  }
}

inline void load_pieces(const ModePlan::Pieces& pieces, const uint8_t* from, uint8_t* block) {
  with_bytes(pieces.bytes, [&](auto bytes) {
    for (const auto& piece : pieces.all) std::memcpy(block + piece.at, from + piece.place, bytes);
  });
}

template <class V>
void store_pieces(const ModePlan::Pieces& pieces, const uint8_t* block, uint8_t* to, bool past) {
  with_bytes(pieces.bytes, [&](auto bytes) {
    if constexpr (bytes >= 16) {
      if (past) {
        for (const auto& piece : pieces.all) V::template copy_past<bytes>(to + piece.place, block + piece.at);
        return;
      }
    }
    for (const auto& piece : pieces.all) std::memcpy(to + piece.place, block + piece.at, bytes);
  });
}

template <class V>
void run_plan(const ModePlan& p, const uint8_t* from, uint8_t* to, bool past, const Rows& next) {
  alignas(64) uint8_t first[ModePlan::most_bytes], second[ModePlan::most_bytes];
  const Vectors<V> read{first, p.in_a_row.data()}, mixed{second, p.in_a_row.data()};
  past = past && p.past_caches && reinterpret_cast<uintptr_t>(to) % 64 == 0;
  // The vectors of a cache line must be stored consecutively to bypass the caches.
  const bool by_pieces = p.to.vectors.empty() || (past && V::form.bits() < 6 && !p.after.empty());
  StripAhead ahead(next, p.row);
  for (const ModePlan::Block& b : p.blocks) {
    ahead.ask(p.bytes / 64);
    Vectors<V> source = read;
    if (p.from.vectors.empty())
      load_pieces(p.from, from + b.from, first);
    else
      source = {const_cast<uint8_t*>(from) + b.from, p.from.vectors.data()};  // nothing is stored there
    const Vectors<V> target = by_pieces ? mixed : Vectors<V>{to + b.to, p.to.vectors.data(), past};
    if (p.planes.empty()) {
      shuffle_all<V>(p, p.after, source, read, target);
    } else {
      if (!p.before.empty()) shuffle_all<V>(p, p.before, std::exchange(source, read), read, read);
      mix_planes<V>(p, source, p.after.empty() ? target : mixed);
      if (!p.after.empty()) shuffle_all<V>(p, p.after, mixed, mixed, target);
    }
    if (by_pieces) store_pieces<V>(p.to, second, to + b.to, past);
  }
  if (past) _mm_sfence();
}

}  // namespace

}  // namespace mxfp4
