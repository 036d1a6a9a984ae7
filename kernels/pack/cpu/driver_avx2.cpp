// Strips by AVX2 byte shuffles; groups and chunks are those of shuffle.h. A group's 64 bytes are split into four
// planes, plane i having byte i of each of its 16 words. A table of 16 entries gives the bits that a nibble of a source
// plane adds to a plane of the result. Eight nibbles make a plane of the result, and the planes are interleaved into
// words.
#include <immintrin.h>

#include <cstring>

#include "kernels/pack/cpu/mode_run.h"
#include "kernels/pack/cpu/shuffle.h"
#include "kernels/pack/cpu/transpose_tile.h"

namespace mxfp4 {

namespace {

/// Four 16-byte vectors, alone or in pairs, the first in the low half.
struct Quad {
  __m128i v[4];
};
struct Pairs {
  __m256i v[2];
};

struct alignas(32) Bytes32 {
  uint8_t b[32] = {};
};
__m256i load(const Bytes32& b) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(b.b)); }
__m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
void store16(uint8_t* p, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }

/// A permutation of 64 bytes: [pair of results][source vector]; 0x80 marks bytes from another source vector.
using Choice = std::array<std::array<Bytes32, 4>, 2>;

template <class From>
constexpr Choice make_choice(From from) {
  Choice c;
  for (int i = 0; i < 64; ++i)
    for (int v = 0; v < 4; ++v) c[i / 32][v].b[i % 32] = from(i) / 16 == v ? uint8_t(from(i) % 16) : 0x80;
  return c;
}

Pairs choose(const Quad& x, const Choice& choice) {
  __m256i both[4];
  for (int i = 0; i < 4; ++i) both[i] = _mm256_broadcastsi128_si256(x.v[i]);
  Pairs y;
  for (int p = 0; p < 2; ++p) {
    const auto part = [&](int i) { return _mm256_shuffle_epi8(both[i], load(choice[p][i])); };
    y.v[p] = _mm256_or_si256(_mm256_or_si256(part(0), part(1)), _mm256_or_si256(part(2), part(3)));
  }
  return y;
}

/// The bits that nibble h of a byte of a source plane adds to a byte of plane j: [j][pair of source planes][h].
struct Tables {
  Bytes32 t[4][2][2];
};
template <class Word>
constexpr Tables make_tables(Word word) {
  Tables tables;
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < 4; ++i)
      for (int h = 0; h < 2; ++h)
        for (uint32_t x = 0; x < 16; ++x)
          tables.t[j][i / 2][h].b[i % 2 * 16 + x] = uint8_t(word(x << (8 * i + 4 * h)) >> 8 * j);
  return tables;
}

Quad mix(const Pairs& planes, const Tables& tables) {
  const __m256i low = _mm256_set1_epi8(15);
  __m256i nibble[2][2];
  for (int p = 0; p < 2; ++p) {
    nibble[p][0] = _mm256_and_si256(planes.v[p], low);
    nibble[p][1] = _mm256_and_si256(_mm256_srli_epi16(planes.v[p], 4), low);
  }
  Quad y;
  for (int j = 0; j < 4; ++j) {
    const auto part = [&](int p, int h) { return _mm256_shuffle_epi8(load(tables.t[j][p][h]), nibble[p][h]); };
    const __m256i sum =
        _mm256_or_si256(_mm256_or_si256(part(0, 0), part(0, 1)), _mm256_or_si256(part(1, 0), part(1, 1)));
    y.v[j] = _mm_or_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  }
  return y;
}

/// Planes to 16 words in a row.
Quad interleave(const Quad& p) {
  const __m128i a = _mm_unpacklo_epi8(p.v[0], p.v[1]), b = _mm_unpackhi_epi8(p.v[0], p.v[1]);
  const __m128i c = _mm_unpacklo_epi8(p.v[2], p.v[3]), d = _mm_unpackhi_epi8(p.v[2], p.v[3]);
  return {{_mm_unpacklo_epi16(a, c), _mm_unpackhi_epi16(a, c), _mm_unpacklo_epi16(b, d), _mm_unpackhi_epi16(b, d)}};
}

/// The inverse, as pairs of planes.
Pairs deinterleave(const Quad& w) {
  const __m128i planes = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m128i x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm_shuffle_epi8(w.v[i], planes);
  const __m128i a = _mm_unpacklo_epi32(x[0], x[1]), b = _mm_unpackhi_epi32(x[0], x[1]);
  const __m128i c = _mm_unpacklo_epi32(x[2], x[3]), d = _mm_unpackhi_epi32(x[2], x[3]);
  return {{_mm256_set_m128i(_mm_unpackhi_epi64(a, c), _mm_unpacklo_epi64(a, c)),
           _mm256_set_m128i(_mm_unpackhi_epi64(b, d), _mm_unpacklo_epi64(b, d))}};
}

/// A layout's form here.
template <class L>
struct Form {
  static constexpr auto& form = shuffle<L>;
  std::array<Choice, form.groups> in, out;  // source bytes to planes of a group, and back
  Tables pack, unpack;

  constexpr Form()
      : in(),
        out(),
        pack(make_tables([](uint32_t w) { return permute<L>(w); })),
        unpack(make_tables([](uint32_t w) { return unpermute<L>(w); })) {
    for (int g = 0; g < form.groups; ++g) {
      std::array<int, 64> from{}, back{};  // plane bytes from source bytes
      for (int i = 0; i < 64; ++i) from[i] = form.in[g][i / 16].b[i % 16 / 8 * 32 + i % 8];
      for (int i = 0; i < 64; ++i) back[from[i]] = i;
      in[g] = make_choice([&](int i) { return from[i]; });
      out[g] = make_choice([&](int i) { return back[i]; });
    }
  }
};
template <class L>
inline constexpr Form<L> form_of{};

/// The source bytes: chunk c from place[c].
template <int chunk>
Quad gather(const uint8_t* tile, const int64_t* place) {
  Quad x;
  if constexpr (chunk == 16) {
    for (int i = 0; i < 4; ++i) x.v[i] = load16(tile + place[i]);
  } else if constexpr (chunk == 8) {
    const auto half = [&](int c) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(tile + place[c])); };
    for (int i = 0; i < 4; ++i) x.v[i] = _mm_unpacklo_epi64(half(2 * i), half(2 * i + 1));
  } else {
    alignas(16) uint8_t bytes[64];
    for (int c = 0; c < 64 / chunk; ++c) std::memcpy(bytes + c * chunk, tile + place[c], chunk);
    for (int i = 0; i < 4; ++i) x.v[i] = load16(bytes + 16 * i);
  }
  return x;
}

template <int chunk>
void scatter(const Pairs& y, uint8_t* tile, const int64_t* place) {
  if constexpr (chunk == 16) {
    for (int i = 0; i < 2; ++i) {
      store16(tile + place[2 * i], _mm256_castsi256_si128(y.v[i]));
      store16(tile + place[2 * i + 1], _mm256_extracti128_si256(y.v[i], 1));
    }
  } else {
    alignas(32) uint8_t bytes[64];
    for (int i = 0; i < 2; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(bytes + 32 * i), y.v[i]);
    for (int c = 0; c < 64 / chunk; ++c) std::memcpy(tile + place[c], bytes + c * chunk, chunk);
  }
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
    alignas(64) uint8_t turned[512];
    if constexpr (has_transposed_groups<L>()) transpose_tile(tile, s.b, turned);
    for (int g = 0; g < form.groups; ++g) {
      Quad x;
      if constexpr (has_transposed_groups<L>())
        for (int i = 0; i < 4; ++i) x.v[i] = load16(turned + 64 * g + 16 * i);
      else
        x = gather<form.chunk>(tile, d.from[g]);
      const Pairs planes = choose(x, form_of<L>.in[g]);
      const Quad words = interleave(mix(planes, form_of<L>.pack));
      for (int i = 0; i < 4; ++i) store16(out + quarter<form.run>(d.to[g], i), words.v[i]);
    }
  }
}

template <class L>
void unpack_shuffles(const uint8_t* packed, Shape s, int64_t tn, uint8_t* strip) {
  constexpr auto& form = shuffle<L>;
  constexpr int ahead = 4096 / (L::tile_n * L::tile_b) + 1;
  const Distances<L> d(s);
  for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb) {
    uint8_t* tile = strip + tb * L::tile_b;
    const uint8_t* in = packed + L::offset(s, tn, tb, 0);
    const uint8_t* next = packed + L::offset(s, tn, tb + ahead, 0);
    alignas(64) uint8_t turned[512];
    for (int g = 0; g < form.groups; ++g) {
      for (int r = 0; r < 16 / form.run; ++r) __builtin_prefetch(next + d.to[g][r]);
      Quad words;
      for (int i = 0; i < 4; ++i) words.v[i] = load16(in + quarter<form.run>(d.to[g], i));
      const Quad planes = mix(deinterleave(words), form_of<L>.unpack);
      const Pairs x = choose(planes, form_of<L>.out[g]);
      if constexpr (has_transposed_groups<L>())
        for (int i = 0; i < 2; ++i) _mm256_store_si256(reinterpret_cast<__m256i*>(turned + 64 * g + 32 * i), x.v[i]);
      else
        scatter<form.chunk>(x, tile, d.from[g]);
    }
    if constexpr (has_transposed_groups<L>()) transpose_tile_back(turned, tile, s.b);
  }
}

void copy_past_caches(uint8_t* to, const uint8_t* from, int64_t bytes) {
  int64_t i = 0;
  if (reinterpret_cast<uintptr_t>(to) % 32 == 0)
    for (; i + 32 <= bytes; i += 32)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  std::memcpy(to + i, from + i, size_t(bytes - i));
  _mm_sfence();
}

struct V {
  using Vector = __m256i;
  struct Index {
    __m256i first, second;  // 0x80 for bytes of the other vector
  };
  static constexpr VectorForm form{4, 1};
  static Vector load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store(uint8_t* p, Vector x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static void past(uint8_t* p, Vector x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), x); }
  static Vector twice(const uint8_t* p) { return _mm256_broadcastsi128_si256(load16(p)); }
  static Index index(const std::array<uint8_t, 64>& i) {
    const Vector from_16 = _mm256_set1_epi8(0x70), both = twice(i.data());
    return {_mm256_add_epi8(both, from_16), _mm256_add_epi8(_mm256_xor_si256(both, _mm256_set1_epi8(16)), from_16)};
  }
  static Vector choose(Vector a, Vector b, const Index& i) {
    return _mm256_or_si256(_mm256_shuffle_epi8(a, i.first), _mm256_shuffle_epi8(b, i.second));
  }
  static Pairs matrix(const ModePlan::Term& t) { return {{twice(t.nibble[0].data()), twice(t.nibble[1].data())}}; }
  static Vector add(Vector sum, Vector x, const Pairs& tables) {
    const Vector low = _mm256_set1_epi8(15);
    const Vector a = _mm256_shuffle_epi8(tables.v[0], _mm256_and_si256(x, low));
    const Vector b = _mm256_shuffle_epi8(tables.v[1], _mm256_and_si256(_mm256_srli_epi16(x, 4), low));
    return _mm256_or_si256(sum, _mm256_or_si256(a, b));
  }
  template <int bytes>
  static void copy_past(uint8_t* to, const uint8_t* from) {
    for (int i = 0; i < bytes; i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), load16(from + i));
  }
};

struct Words {
  static constexpr auto stream = copy_past_caches;
  template <class L>
  static constexpr PackStrip pack = pack_shuffles<L>;
  template <class L>
  static constexpr UnpackStrip unpack = unpack_shuffles<L>;
};

}  // namespace

constinit const Driver avx2_driver = [] {
  Driver driver = shuffles_driver<Words>("avx2", [] { return bool(__builtin_cpu_supports("avx2")); });
  driver.run_plan = run_plan<V>;
  driver.vectors = V::form;
  return driver;
}();

}  // namespace mxfp4
