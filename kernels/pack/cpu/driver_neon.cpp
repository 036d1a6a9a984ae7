// Strips by Advanced SIMD; groups and chunks are those of shuffle.h, networks those of network.h. A group's 64 bytes
// are four vectors, and its words four planes, plane i having byte i of each of 16 words. Bits go from plane to plane
// by shifts of whole planes that insert.
#include <arm_neon.h>

#include <cstring>

#include "kernels/pack/cpu/network.h"
#include "kernels/pack/cpu/shuffle.h"

namespace mxfp4 {

namespace {

/// What takes or gives one is inlined: a call would pass it in memory.
struct Quad {
  uint8x16_t v[4];
};

template <Stage stage, bool other, int... i>
uint8x16_t pick(uint8x16_t a, uint8x16_t b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, stage.source(other, i)...);
}
template <Stage stage>
[[gnu::always_inline]] inline Quad apply(const Quad& x) {
  if constexpr (stage.kind == Pairing::none) {
    return x;
  } else {
    constexpr auto bytes = std::make_integer_sequence<int, 16>();
    Quad y;
    for (const int i : {0, 3 - stage.apart}) {
      y.v[i] = pick<stage, false>(x.v[i], x.v[i + stage.apart], bytes);
      y.v[i + stage.apart] = pick<stage, true>(x.v[i], x.v[i + stage.apart], bytes);
    }
    return y;
  }
}

/// What one plane gives to a plane of the result: bits `mask` of it, shifted left by `shift`, right where negative.
struct Move {
  int from = 0, shift = 0;
  uint8_t mask = 0;
  bool insert = false;  // by an instruction that keeps the bits which its shift leaves empty
};
struct Moves {
  Move move[32];
  int count = 0;
};

/// The moves that make plane j. `word` is linear over OR. Later moves write over what earlier ones left in their bits.
template <class Word>
constexpr Moves make_moves(Word word, int j) {
  constexpr int shifts[15] = {0, -1, -2, -3, -4, -5, -6, -7, 1, 2, 3, 4, 5, 6, 7};
  Moves m;
  for (const int shift : shifts)
    for (int from = 0; from < 4; ++from) {
      uint8_t mask = 0;
      for (int bit = 0; bit < 8; ++bit) {
        const int to = bit + shift;
        if (to >= 0 && to < 8 && word(1u << (8 * from + bit)) == 1u << (8 * j + to)) mask |= uint8_t(1 << to);
      }
      if (mask) m.move[m.count++] = {from, shift, mask, false};
    }
  uint8_t later = 0;
  for (int i = m.count - 1; i > 0; --i) {
    Move& move = m.move[i];
    const auto written = uint8_t(move.shift > 0 ? 0xFF << move.shift : 0xFF >> -move.shift);
    move.insert = move.shift != 0 && (written & ~(move.mask | later)) == 0;
    later |= move.mask;
  }
  return m;
}

template <int shift>
uint8x16_t shifted(uint8x16_t x) {
  if constexpr (shift > 0)
    return vshlq_n_u8(x, shift);
  else if constexpr (shift < 0)
    return vshrq_n_u8(x, -shift);
  else
    return x;
}

/// The moves of a word's permutation, by plane of the result.
template <uint32_t (*word)(uint32_t)>
inline constexpr Moves moves_of[4] = {make_moves(word, 0), make_moves(word, 1), make_moves(word, 2),
                                      make_moves(word, 3)};

template <uint32_t (*word)(uint32_t), int j, int i>
void add_move(uint8x16_t& y, const Quad& planes) {
  constexpr Move move = moves_of<word>[j].move[i];
  const uint8x16_t from = planes.v[move.from];
  if constexpr (i == 0)
    y = shifted<move.shift>(from);
  else if constexpr (move.insert && move.shift > 0)
    y = vsliq_n_u8(y, from, move.shift);
  else if constexpr (move.insert)
    y = vsriq_n_u8(y, from, -move.shift);
  else
    y = vbslq_u8(vdupq_n_u8(move.mask), shifted<move.shift>(from), y);
}

template <uint32_t (*word)(uint32_t), int j>
uint8x16_t mixed_plane(const Quad& planes) {
  uint8x16_t y;
  const auto all = [&]<int... i>(std::integer_sequence<int, i...>) { (add_move<word, j, i>(y, planes), ...); };
  all(std::make_integer_sequence<int, moves_of<word>[j].count>());
  return y;
}
template <uint32_t (*word)(uint32_t)>
[[gnu::always_inline]] inline Quad mix(const Quad& p) {
  return {{mixed_plane<word, 0>(p), mixed_plane<word, 1>(p), mixed_plane<word, 2>(p), mixed_plane<word, 3>(p)}};
}

/// Planes to 16 words in a row: the outer stage first.
inline constexpr Stage interleave[2] = {{Pairing::zip, 0, 2}, {Pairing::zip, 0, 1}};

/// A layout's form here. Where it moves bytes only, the network ends in words, else in planes.
template <class L>
struct Form {
  static constexpr auto& form = shuffle<L>;
  std::optional<Network> network;
  std::array<int, 64> order{};  // of chunks

  constexpr Form() {
    Bits goal{};
    for (int i = 0; i < 64; ++i) {  // a sum of what its bits give, or there is no network
      const int from = place(i);
      int sum = 0;
      for (int bit = 0; bit < 6; ++bit) sum += (i >> bit & 1) * place(1 << bit);
      if (from != sum) return;
    }
    for (int bit = 0; bit < 6; ++bit)
      while (1 << goal[bit] < place(1 << bit)) ++goal[bit];
    int fixed = 0;
    while (1 << fixed < form.chunk) ++fixed;
    network = find_network(goal, fixed);
    for (int c = 0; network && c < 64 / form.chunk; ++c)
      for (int bit = fixed; bit < 6; ++bit) order[c] |= (c >> (bit - fixed) & 1) << (network->loaded[bit] - fixed);
  }

 private:
  /// Where byte i of the planes, or of the words, stands in the group.
  static constexpr int place(int i) {
    const int word = moves_bytes<L>() ? i / 4 : i % 16, byte = moves_bytes<L>() ? i % 4 : i / 16;
    return form.in[0][byte].b[word / 8 * 32 + word % 8];
  }
};
template <class L>
inline constexpr Form<L> form_of{};

template <class L>
[[gnu::always_inline]] inline Quad pack_group(const Quad& bytes) {
  constexpr Network n = *form_of<L>.network;
  const Quad x = apply<n.stage[1]>(apply<n.stage[0]>(bytes));
  if constexpr (moves_bytes<L>())
    return x;
  else
    return apply<interleave[1]>(apply<interleave[0]>(mix<permute<L>>(x)));
}
template <class L>
[[gnu::always_inline]] inline Quad unpack_group(const Quad& words) {
  constexpr Network n = *form_of<L>.network;
  Quad x = words;
  if constexpr (!moves_bytes<L>())
    x = mix<unpermute<L>>(apply<interleave[0].inverse()>(apply<interleave[1].inverse()>(x)));
  return apply<n.stage[0].inverse()>(apply<n.stage[1].inverse()>(x));
}

/// The source bytes: chunk order[c] of those in place[], then the next.
template <class L>
[[gnu::always_inline]] inline Quad gather(const uint8_t* tile, const int64_t* place) {
  constexpr int chunk = shuffle<L>.chunk;
  constexpr auto& order = form_of<L>.order;
  Quad x;
  if constexpr (chunk == 16) {
    for (int i = 0; i < 4; ++i) x.v[i] = vld1q_u8(tile + place[order[i]]);
  } else if constexpr (chunk == 8) {
    for (int i = 0; i < 4; ++i)
      x.v[i] = vcombine_u8(vld1_u8(tile + place[order[2 * i]]), vld1_u8(tile + place[order[2 * i + 1]]));
  } else {
    alignas(64) uint8_t bytes[64];
    for (int c = 0; c < 64 / chunk; ++c) std::memcpy(bytes + c * chunk, tile + place[order[c]], chunk);
    for (int i = 0; i < 4; ++i) x.v[i] = vld1q_u8(bytes + 16 * i);
  }
  return x;
}

template <class L>
[[gnu::always_inline]] inline void scatter(const Quad& x, uint8_t* tile, const int64_t* place) {
  constexpr int chunk = shuffle<L>.chunk;
  alignas(64) uint8_t bytes[64];
  for (int i = 0; i < 4; ++i) vst1q_u8(bytes + 16 * i, x.v[i]);
  for (int c = 0; c < 64 / chunk; ++c) std::memcpy(tile + place[form_of<L>.order[c]], bytes + c * chunk, chunk);
}

template <class L>
void pack_shuffles(const uint8_t* strip, Shape s, int64_t tn, uint8_t* packed, const Rows& next) {
  constexpr auto& form = shuffle<L>;
  const Distances<L> d(s);
  StripAhead ahead(next, s.b);
  for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb) {
    const uint8_t* tile = strip + tb * L::tile_b;
    uint8_t* out = packed + L::offset(s, tn, tb, 0);
    ahead.ask(lines_per_tile<L>);
    for (int g = 0; g < form.groups; ++g) {
      const Quad words = pack_group<L>(gather<L>(tile, d.from[g]));
      for (int i = 0; i < 4; ++i) vst1q_u8(out + quarter<form.run>(d.to[g], i), words.v[i]);
    }
  }
}

template <class L>
void unpack_shuffles(const uint8_t* packed, Shape s, int64_t tn, uint8_t* strip) {
  constexpr auto& form = shuffle<L>;
  const Distances<L> d(s);
  for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb) {
    uint8_t* tile = strip + tb * L::tile_b;
    const uint8_t* in = packed + L::offset(s, tn, tb, 0);
    for (int g = 0; g < form.groups; ++g) {
      Quad words;
      for (int i = 0; i < 4; ++i) words.v[i] = vld1q_u8(in + quarter<form.run>(d.to[g], i));
      scatter<L>(unpack_group<L>(words), tile, d.from[g]);
    }
  }
}

struct Words {
  static constexpr void (*stream)(uint8_t*, const uint8_t*, int64_t) = nullptr;
  template <class L>
  static consteval std::pair<PackStrip, UnpackStrip> both() {
    if constexpr (form_of<L>.network.has_value())
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
