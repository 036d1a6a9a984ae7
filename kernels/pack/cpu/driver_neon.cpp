// Strips by Advanced SIMD: 4 to 16 vectors of 16 bytes of a row are brought to packed order by the networks of
// network.h. On the way the words of four vectors are four planes, plane i having byte i of each of 16 words. Bits move
// from plane to plane by shift-and-insert instructions on whole planes. The driver "sve" differs from "neon" only in
// its stores, if a network ends in a zip.
#include <arm_neon.h>
#include <sys/auxv.h>

#include <algorithm>

#include "kernels/pack/cpu/planes.h"
#include "kernels/pack/cpu/span.h"

namespace mxfp4 {

namespace {

/// Functions that take or return vectors are inlined, because a call would pass them in memory.
template <int n>
struct Vectors {
  static constexpr int count = n;
  uint8x16_t v[n];
};

/// Calls f with each of 0 to n - 1, as constants.
template <int n, class F>
[[gnu::always_inline]] inline void unrolled(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, n>());
}

template <Stage stage, bool other, int... i>
uint8x16_t pick(uint8x16_t a, uint8x16_t b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, stage.source(other, i)...);
}
/// The table of a look-up.
template <Stage stage, bool other, int... i>
uint8x16_t sources(std::integer_sequence<int, i...>) {
  return uint8x16_t{stage.source(other, i)...};
}
/// Vector v of those that a stage makes of x.
template <Stage stage, int v, int n>
[[gnu::always_inline]] inline uint8x16_t staged(const Vectors<n>& x) {
  constexpr int other = 1 << stage.slot;
  return pick<stage, (v & other) != 0>(x.v[v & ~other], x.v[v | other], std::make_integer_sequence<int, 16>());
}
template <Stage stage, int n>
[[gnu::always_inline]] inline void apply(Vectors<n>& x) {
  constexpr int other = 1 << stage.slot;
  unrolled<n>([&](auto v) {
    if constexpr ((v & other) == 0) {
      const uint8x16_t first = staged<stage, v>(x);
      x.v[v | other] = staged<stage, v | other>(x);
      x.v[v] = first;
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

/// The bits of a move from the planes, before the shift.
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

/// The bits that a chain inserts into its first plane, with the shift of its second.
template <Moves moves>
uint8x16_t chained(const Vectors<4>& planes) {
  uint8x16_t y = taken<moves.move[1]>(planes);
  unrolled<moves.count - 2>([&](auto i) {
    constexpr Move move = moves.move[i + 2];
    y = vsliq_n_u8(y, taken<move>(planes), move.shift - moves.move[1].shift);
  });
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
  constexpr Moves zero = m.plane[0];
  Vectors<4> y;  // the planes in the order that planes.h counts on
  if constexpr (!is_chain(zero)) y.v[1] = moved<m.plane[1]>(x);
  y.v[3] = moved<m.plane[3]>(x);
  y.v[2] = moved<m.plane[2]>(x);
  if constexpr (is_chain(zero)) {
    const uint8x16_t chain = chained<zero>(x);
    y.v[1] = moved<m.plane[1]>(x);
    y.v[0] = vsliq_n_u8(taken<zero.move[0]>(x), chain, zero.move[1].shift);
  } else {
    y.v[0] = moved<zero>(x);
  }
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

/// Calls f(block, tile) for the blocks of strip tn. block: the begin of the block in the strip; tile: its tiles in the
/// packed matrix. The last block may repeat tiles of the block before.
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
constexpr int tile_of(const Bits& stored, int v) {
  return spans<L>.place(stored, v) / Spans<L>::tile;
}

/// Loads the vectors of a span. If the first stage is a look-up, it is applied here: its pairs are 32 bytes of a row.
template <class L, bool zipping>
[[gnu::always_inline]] inline auto load(const uint8_t* block, const int64_t* from) {
  constexpr Stage first = network<L, zipping>.stage[0];
  constexpr int other = 1 << first.slot;
  Vectors<SpanDistances<L>::vectors> x;
  unrolled<SpanDistances<L>::vectors>([&](auto v) __attribute__((always_inline)) {
    if constexpr (first.kind != Pairing::look_up) {
      x.v[v] = vld1q_u8(block + from[v]);
    } else if constexpr ((v & other) == 0) {
      const uint8x16x2_t pair = vld1q_u8_x2(block + from[v]);
      x.v[v] = vqtbl2q_u8(pair, sources<first, false>(std::make_integer_sequence<int, 16>()));
      x.v[v | other] = vqtbl2q_u8(pair, sources<first, true>(std::make_integer_sequence<int, 16>()));
    }
  });
  return x;
}

struct Bytes32 {
  uint8_t b[32];
};
/// Zips the elements of a and b into 32 bytes. SVE's store of two structures uses a vector unit once; two zips and two
/// stores use a unit four times. The two registers must be consecutive.
template <int element>
[[gnu::always_inline]] inline void store_zipped(uint8_t* to, uint8x16_t a, uint8x16_t b) {
  register uint8x16_t first asm("v30") = a;
  register uint8x16_t second asm("v31") = b;
  asm inline(
      ".arch_extension sve\n\t"
      "ptrue p7.b, vl16\n\t"
      ".if %c[element] == 0\n\t"
      "st2b {z30.b, z31.b}, p7, %[to]\n\t"
      ".else\n\t"
      "st2h {z30.h, z31.h}, p7, %[to]\n\t"
      ".endif"
      : [to] "=Q"(*reinterpret_cast<Bytes32*>(to))
      : "w"(first), "w"(second), [element] "i"(element)
      : "p7");
}

/// Stores vector v of a span. With `zipping` the last two stages are applied here to vectors v and v + 1, because
/// registers are free by then.
template <class L, bool zipping, int v, int n>
[[gnu::always_inline]] inline void store(const Vectors<n>& x, uint8_t* place) {
  constexpr auto& net = network<L, zipping>;
  constexpr Stage last = net.stage[net.count - 1], stage = net.stage[net.count - 2];
  if constexpr (!zipping)
    vst1q_u8(place, x.v[v]);
  else if constexpr ((v >> last.slot & 1) == 0)
    store_zipped<last.element>(place, staged<stage, v>(x), staged<stage, v | 1 << last.slot>(x));
}

template <class L, bool zipping>
void pack_shuffles(const uint8_t* strip, Shape s, int64_t tn, uint8_t* packed, const Rows& next) {
  constexpr auto& n = network<L, zipping>;
  constexpr int loaded = n.stage[0].kind == Pairing::look_up, stored = zipping ? 2 : 0;
  static_assert(n.count - n.mixed >= stored);
  if (s.b < 16) return pack_strip_tables<L>(strip, s, tn, packed, next);
  const SpanDistances<L> places(s, n);
  StripAhead ahead(next, s.b);
  each_block<L>(s, tn, [&](int64_t block, const int64_t* tile) {
    ahead.ask(lines_per_tile<L> * Spans<L>::tiles);
    for (int i = 0; i < places.count; ++i) {
      auto x = load<L, zipping>(strip + block, places.from[i]);
      unrolled<n.mixed - loaded>([&](auto k) { apply<n.stage[loaded + k]>(x); });
      if constexpr (!moves_bytes<L>()) mix<permute<L>, n.planes>(x);
      unrolled<n.count - n.mixed - stored>([&](auto k) { apply<n.stage[n.mixed + k]>(x); });
      unrolled<x.count>([&](auto v) __attribute__((always_inline)) {
        store<L, zipping, v>(x, packed + tile[tile_of<L>(n.stored, v)] + places.to[i][v]);
      });
    }
  });
}

template <class L>
void unpack_shuffles(const uint8_t* packed, Shape s, int64_t tn, uint8_t* strip) {
  constexpr auto& n = network<L, false>;
  constexpr int vectors = SpanDistances<L>::vectors;
  if (s.b < 16) return unpack_strip_tables<L>(packed, s, tn, strip);
  const SpanDistances<L> places(s, n);
  each_block<L>(s, tn, [&](int64_t block, const int64_t* tile) {
    for (int i = 0; i < places.count; ++i) {
      Vectors<vectors> x;
      unrolled<vectors>([&](auto v) { x.v[v] = vld1q_u8(packed + tile[tile_of<L>(n.stored, v)] + places.to[i][v]); });
      unrolled<n.count - n.mixed>([&](auto k) { apply<n.stage[n.count - 1 - k].inverse()>(x); });
      if constexpr (!moves_bytes<L>()) mix<unpermute<L>, n.planes>(x);
      unrolled<n.mixed>([&](auto k) { apply<n.stage[n.mixed - 1 - k].inverse()>(x); });
      unrolled<vectors>([&](auto v) { vst1q_u8(strip + block + places.from[i][v], x.v[v]); });
    }
  });
}

template <bool sve>
struct Words {
  static constexpr void (*stream)(uint8_t*, const uint8_t*, int64_t) = nullptr;
  template <class L>
  static consteval std::pair<PackStrip, UnpackStrip> both() {
    if constexpr (spans<L>.fits)
      return {pack_shuffles<L, (sve && spans<L>.zipping.ends_in_zip)>, unpack_shuffles<L>};
    else
      return {};
  }
  template <class L>
  static constexpr PackStrip pack = both<L>().first;
  template <class L>
  static constexpr UnpackStrip unpack = both<L>().second;
};

}  // namespace

constinit const Driver neon_driver = shuffles_driver<Words<false>>("neon", [] { return true; });
constinit const Driver sve_driver =
    shuffles_driver<Words<true>>("sve", [] { return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0; });

}  // namespace mxfp4
