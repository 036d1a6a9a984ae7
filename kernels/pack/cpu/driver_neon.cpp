// Strips by Advanced SIMD: 4 to 16 vectors of 16 bytes of a row are brought to packed order by the networks of
// network.h. On the way the words of four vectors are four planes, plane i having byte i of each of 16 words. Bits go
// from plane to plane by shifts of whole planes that insert.
#include <arm_neon.h>

#include <algorithm>

#include "kernels/pack/cpu/planes.h"
#include "kernels/pack/cpu/span.h"

namespace mxfp4 {

namespace {

/// What takes or gives them is inlined: a call would pass them in memory.
template <int n>
struct Vectors {
  uint8x16_t v[n];
};

/// Calls f with each of 0 to n - 1, as constants.
template <int n, class F>
[[gnu::always_inline]] inline void unrolled(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, n>());
}

template <Stage stage, bool other, int... i>
uint8x16_t pick(uint8x16_t a, uint8x16_t b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, stage.source(other, i)...);
}
template <Stage stage, int n>
[[gnu::always_inline]] inline void apply(Vectors<n>& x) {
  unrolled<n>([&](auto i) {
    if constexpr ((i >> stage.slot & 1) == 0) {
      constexpr auto bytes = std::make_integer_sequence<int, 16>();
      const uint8x16_t a = x.v[i], b = x.v[i + (1 << stage.slot)];
      x.v[i] = pick<stage, false>(a, b, bytes);
      x.v[i + (1 << stage.slot)] = pick<stage, true>(a, b, bytes);
    }
  });
}

template <int shift>
uint8x16_t shifted(uint8x16_t x) {
  if constexpr (shift == 1)
    return vaddq_u8(x, x);  // all vector units add, half of them shift
  else if constexpr (shift > 0)
    return vshlq_n_u8(x, shift);
  else if constexpr (shift < 0)
    return vshrq_n_u8(x, -shift);
  else
    return x;
}

template <uint32_t (*word)(uint32_t)>
inline constexpr Mixing mixing = make_mixing(word);

/// What a move takes from the planes, not yet shifted.
template <Move m>
uint8x16_t taken(const Vectors<4>& planes) {
  constexpr int first = std::find_if(m.mask.begin(), m.mask.end(), [](int mask) { return mask != 0; }) - m.mask.begin();
  uint8x16_t y = planes.v[first];
  unrolled<4>([&](auto i) {
    if constexpr (i > first && m.mask[i] != 0) y = vbslq_u8(vdupq_n_u8(m.from(i)), planes.v[i], y);
  });
  return y;
}

template <Moves moves, int i>
void add_move(uint8x16_t& y, const Vectors<4>& planes) {
  constexpr Move move = moves.move[i];
  const uint8x16_t x = taken<move>(planes);
  if constexpr (i == 0)
    y = shifted<move.shift>(x);
  else if constexpr (move.insert && move.shift > 0)
    y = vsliq_n_u8(y, x, move.shift);
  else if constexpr (move.insert)
    y = vsriq_n_u8(y, x, -move.shift);
  else
    y = vbslq_u8(vdupq_n_u8(move.bits()), shifted<move.shift>(x), y);
}

template <Moves moves>
uint8x16_t moved(const Vectors<4>& planes) {
  uint8x16_t y;
  unrolled<moves.count>([&](auto i) { add_move<moves, i>(y, planes); });
  return y;
}

/// exchanged() of planes.h.
template <int pairs>
void exchange(Vectors<4>& x) {
  unrolled<2>([&](auto j) {
    if constexpr ((pairs >> j & 1) != 0) {
      const uint8x16_t a = x.v[j], b = x.v[j + 2];
      x.v[j] = vsliq_n_u8(a, b, 4);
      x.v[j + 2] = vsriq_n_u8(b, a, 4);
    }
  });
}

template <uint32_t (*word)(uint32_t)>
[[gnu::always_inline]] inline Vectors<4> mixed(Vectors<4> x) {
  constexpr auto& m = mixing<word>;
  exchange<m.before>(x);
  Vectors<4> y;  // the planes in the order that planes.h counts on
  y.v[1] = moved<m.plane[1]>(x);
  y.v[3] = moved<m.plane[3]>(x);
  y.v[2] = moved<m.plane[2]>(x);
  y.v[0] = moved<m.plane[0]>(x);
  exchange<m.after>(y);
  return y;
}

/// Mixes the bits of all words. Planes of the same words are vectors whose numbers differ in the slots of bits 0 and 1.
template <uint32_t (*word)(uint32_t), Bits bits, int n>
[[gnu::always_inline]] inline void mix(Vectors<n>& x) {
  constexpr auto find = [](int bit) {
    return 1 << (std::find(bits.slot.begin(), bits.slot.end(), bit) - bits.slot.begin());
  };
  constexpr int one = find(0), two = find(1);
  unrolled<n>([&](auto i) {
    if constexpr ((i & (one | two)) == 0) {
      const Vectors<4> y = mixed<word>({{x.v[i], x.v[i | one], x.v[i | two], x.v[i | one | two]}});
      x.v[i] = y.v[0];
      x.v[i | one] = y.v[1];
      x.v[i | two] = y.v[2];
      x.v[i | one | two] = y.v[3];
    }
  });
}

/// Calls f(block, tile) for the blocks of strip tn: where each begins in the strip, and its tiles in the packed matrix.
/// The last block may have tiles of the one before.
template <class L, class F>
void each_block(Shape s, int64_t tn, F f) {
  constexpr int tiles = Spans<L>::tiles;
  const int64_t count = s.b / L::tile_b;
  for (int64_t tb = 0; tb < count; tb += tiles) {
    const int64_t first = std::min(tb, count - tiles);
    int64_t tile[tiles];
    for (int t = 0; t < tiles; ++t) tile[t] = L::offset(s, tn, first + t, 0);
    f(first * L::tile_b, tile);
  }
}
template <class L>
constexpr int tile_of(int v) {
  return spans<L>.place(spans<L>.network.stored, v) / Spans<L>::tile;
}

template <class L>
void pack_shuffles(const uint8_t* strip, Shape s, int64_t tn, uint8_t* packed, const Rows& next) {
  constexpr auto& n = spans<L>.network;
  constexpr int vectors = SpanDistances<L>::vectors;
  if (s.b < 16) return pack_strip_tables<L>(strip, s, tn, packed, next);
  const SpanDistances<L> places(s);
  StripAhead ahead(next, s.b);
  each_block<L>(s, tn, [&](int64_t block, const int64_t* tile) {
    ahead.ask(lines_per_tile<L> * Spans<L>::tiles);
    for (int i = 0; i < places.count; ++i) {
      Vectors<vectors> x;
      unrolled<vectors>([&](auto v) { x.v[v] = vld1q_u8(strip + block + places.from[i][v]); });
      unrolled<n.mixed>([&](auto k) { apply<n.stage[k]>(x); });
      if constexpr (!moves_bytes<L>()) mix<permute<L>, n.planes>(x);
      unrolled<n.count - n.mixed>([&](auto k) { apply<n.stage[n.mixed + k]>(x); });
      unrolled<vectors>([&](auto v) { vst1q_u8(packed + tile[tile_of<L>(v)] + places.to[i][v], x.v[v]); });
    }
  });
}

template <class L>
void unpack_shuffles(const uint8_t* packed, Shape s, int64_t tn, uint8_t* strip) {
  constexpr auto& n = spans<L>.network;
  constexpr int vectors = SpanDistances<L>::vectors;
  if (s.b < 16) return unpack_strip_tables<L>(packed, s, tn, strip);
  const SpanDistances<L> places(s);
  each_block<L>(s, tn, [&](int64_t block, const int64_t* tile) {
    for (int i = 0; i < places.count; ++i) {
      Vectors<vectors> x;
      unrolled<vectors>([&](auto v) { x.v[v] = vld1q_u8(packed + tile[tile_of<L>(v)] + places.to[i][v]); });
      unrolled<n.count - n.mixed>([&](auto k) { apply<n.stage[n.count - 1 - k].inverse()>(x); });
      if constexpr (!moves_bytes<L>()) mix<unpermute<L>, n.planes>(x);
      unrolled<n.mixed>([&](auto k) { apply<n.stage[n.mixed - 1 - k].inverse()>(x); });
      unrolled<vectors>([&](auto v) { vst1q_u8(strip + block + places.from[i][v], x.v[v]); });
    }
  });
}

struct Words {
  static constexpr void (*stream)(uint8_t*, const uint8_t*, int64_t) = nullptr;
  template <class L>
  static consteval std::pair<PackStrip, UnpackStrip> both() {
    if constexpr (spans<L>.fits)
      return {pack_shuffles<L>, unpack_shuffles<L>};
    else
      return {};
  }
  template <class L>
  static constexpr PackStrip pack = both<L>().first;
  template <class L>
  static constexpr UnpackStrip unpack = both<L>().second;
};

}  // namespace

constinit const Driver neon_driver = shuffles_driver<Words>("neon", [] { return true; });

}  // namespace mxfp4
