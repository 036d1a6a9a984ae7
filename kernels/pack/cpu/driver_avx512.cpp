// Strips by AVX-512 byte shuffles (VBMI) and bit matrices (GFNI); the form is computed in shuffle.h.
#include <immintrin.h>

#include <cstring>

#include "kernels/pack/cpu/mode_run.h"
#include "kernels/pack/cpu/shuffle.h"
#include "kernels/pack/cpu/strip.h"
#include "kernels/pack/cpu/transpose_tile.h"

namespace mxfp4 {

namespace {

__m512i load(const Bytes64& b) { return _mm512_load_si512(b.b); }
__m512i load(const Lanes& l) { return _mm512_load_si512(l.q); }

/// The four chosen bytes of every word, each times its matrix, added.
template <class Indices, class Matrices>
__m512i mix(__m512i x, const Indices& indices, const Matrices& matrices) {
  __m512i y[4];
  for (int i = 0; i < 4; ++i)
    y[i] = _mm512_gf2p8affine_epi64_epi8(_mm512_permutexvar_epi8(load(indices[i]), x), load(matrices[i]), 0);
  return _mm512_ternarylogic_epi64(_mm512_xor_si512(y[0], y[1]), y[2], y[3], 0x96);
}

/// The source vector: chunk c from place[c].
template <int chunk>
__m512i gather(const uint8_t* tile, const int64_t* place) {
  __m512i x = _mm512_setzero_si512();
  for (int c = 0; c < 64 / chunk; ++c) {
    const uint8_t* p = tile + place[c];
    if constexpr (chunk == 16)
      x = _mm512_mask_broadcast_i64x2(x, __mmask8(3 << 2 * c), _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    else if constexpr (chunk == 8)
      x = _mm512_mask_broadcastq_epi64(x, __mmask8(1 << c), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    else if constexpr (chunk == 4)
      x = _mm512_mask_broadcastd_epi32(x, __mmask16(1 << c), _mm_loadu_si32(p));
    else
      x = _mm512_mask_broadcastw_epi16(x, __mmask32(1) << c, _mm_loadu_si16(p));
  }
  return x;
}

template <int chunk>
void scatter(__m512i x, uint8_t* tile, const int64_t* place) {
  Bytes64 bytes;
  _mm512_store_si512(bytes.b, x);
  for (int c = 0; c < 64 / chunk; ++c) std::memcpy(tile + place[c], bytes.b + c * chunk, chunk);
}

/// A tile with turned groups: group g to x[g]. Lane l of a vector holds a row of rows 8l to 8l+7, then eight rows'
/// pairs.
void turn_rows(const uint8_t* tile, int64_t stride, __m512i (&x)[8]) {
  const auto row = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(tile + r * stride)); };
  for (int i = 0; i < 8; ++i) {
    x[i] = _mm512_inserti32x4(_mm512_castsi128_si512(row(i)), row(i + 8), 1);
    x[i] = _mm512_inserti32x4(_mm512_inserti32x4(x[i], row(i + 16), 2), row(i + 24), 3);
  }
  __m512i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm512_unpacklo_epi16(x[2 * i], x[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_epi16(x[2 * i], x[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i)
    for (int h = 0; h < 2; ++h) {
      b[4 * i + 2 * h] = _mm512_unpacklo_epi32(a[4 * i + h], a[4 * i + 2 + h]);
      b[4 * i + 2 * h + 1] = _mm512_unpackhi_epi32(a[4 * i + h], a[4 * i + 2 + h]);
    }
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = _mm512_unpacklo_epi64(b[i], b[4 + i]);
    x[2 * i + 1] = _mm512_unpackhi_epi64(b[i], b[4 + i]);
  }
}

/// The source vectors of twin groups, and back. place: the places of the even group's chunks.
struct Twins {
  __m512i even, odd;
};
Twins gather_twins(const uint8_t* tile, const int64_t* place) {
  const auto pieces = [&](int c) {
    const auto* a = reinterpret_cast<const __m256i*>(tile + place[c]);
    const auto* b = reinterpret_cast<const __m256i*>(tile + place[c + 2]);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(a)), _mm256_loadu_si256(b), 1);
  };
  const __m512i a = pieces(0), b = pieces(4);
  return {_mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), b),
          _mm512_permutex2var_epi64(a, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), b)};
}
void scatter_twins(const Twins& x, uint8_t* tile, const int64_t* place) {
  const __m512i a = _mm512_permutex2var_epi64(x.even, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), x.odd);
  const __m512i b = _mm512_permutex2var_epi64(x.even, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), x.odd);
  const auto store = [&](int c, __m256i piece) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile + place[c]), piece);
  };
  store(0, _mm512_castsi512_si256(a));
  store(2, _mm512_extracti64x4_epi64(a, 1));
  store(4, _mm512_castsi512_si256(b));
  store(6, _mm512_extracti64x4_epi64(b, 1));
}

/// 16 words to or from runs of `run` neighbours; `past`: past the caches, as far as they are aligned for it.
template <int run, bool past>
void store_runs(__m512i x, uint8_t* out, const int64_t* to) {
  if constexpr (run == 16) {
    if (past && reinterpret_cast<uintptr_t>(out + to[0]) % 64 == 0)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + to[0]), x);
    else
      _mm512_storeu_si512(out + to[0], x);
  } else if constexpr (run == 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + to[0]), _mm512_castsi512_si256(x));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + to[1]), _mm512_extracti64x4_epi64(x, 1));
  } else {
    Bytes64 bytes;
    _mm512_store_si512(bytes.b, x);
    for (int r = 0; r < 4; ++r) std::memcpy(out + to[r], bytes.b + r * 16, 16);
  }
}
template <int run>
__m512i load_runs(const uint8_t* in, const int64_t* to) {
  if constexpr (run == 16) {
    return _mm512_loadu_si512(in + to[0]);
  } else {
    __m512i x = _mm512_setzero_si512();
    for (int r = 0; r < 16 / run; ++r)
      if constexpr (run == 8)
        x = _mm512_mask_broadcast_i64x4(x, __mmask8(15 << 4 * r),
                                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + to[r])));
      else
        x = _mm512_mask_broadcast_i64x2(x, __mmask8(3 << 2 * r),
                                        _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + to[r])));
    return x;
  }
}

/// Strips of codes that go to many places are large, and written past the caches from here.
template <class L>
inline constexpr bool past_caches = !is_strip_together<L>() && L::tile_b >= 8;

template <class L>
void pack_shuffles(const uint8_t* strip, Shape s, int64_t tn, uint8_t* packed, const Rows& next) {
  constexpr auto& form = shuffle<L>;
  const Distances<L> d(s);
  const __m512i lanes = load(form.lanes);
  StripAhead ahead(next, s.b);
  for (int64_t tb = 0; tb < s.b / L::tile_b; ++tb) {
    const uint8_t* tile = strip + tb * L::tile_b;
    uint8_t* out = packed + L::offset(s, tn, tb, 0);
    ahead.ask(lines_per_tile<L>);
    const auto put = [&](int g, __m512i x) {
      const __m512i y = _mm512_permutexvar_epi8(lanes, mix(x, form.in[g], form.pack));
      store_runs<form.run, past_caches<L>>(y, out, d.to[g]);
    };
    if constexpr (has_transposed_groups<L>()) {
      __m512i x[8];
      turn_rows(tile, s.b, x);
      for (int g = 0; g < form.groups; ++g) put(g, x[g]);
    } else if constexpr (form.twins) {
      for (int g = 0; g < form.groups / 2; ++g) {
        const Twins x = gather_twins(tile, d.from[g]);
        put(g, x.even);
        put(g + form.groups / 2, x.odd);
      }
    } else {
      for (int g = 0; g < form.groups; ++g) put(g, gather<form.chunk>(tile, d.from[g]));
    }
  }
  if (past_caches<L>) _mm_sfence();
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
    const auto get = [&](int g) {
      for (int r = 0; r < 16 / form.run; ++r) __builtin_prefetch(next + d.to[g][r]);
      const __m512i y = mix(load_runs<form.run>(in, d.to[g]), form.word, form.unpack);
      return _mm512_permutexvar_epi8(load(form.out[g]), y);
    };
    if constexpr (has_transposed_groups<L>()) {
      alignas(64) uint8_t turned[512];
      for (int g = 0; g < form.groups; ++g) _mm512_store_si512(turned + 64 * g, get(g));
      transpose_tile_back(turned, tile, s.b);
    } else if constexpr (form.twins) {
      for (int g = 0; g < form.groups / 2; ++g) scatter_twins({get(g), get(g + form.groups / 2)}, tile, d.from[g]);
    } else {
      for (int g = 0; g < form.groups; ++g) scatter<form.chunk>(get(g), tile, d.from[g]);
    }
  }
}

void copy_past_caches(uint8_t* to, const uint8_t* from, int64_t bytes) {
  int64_t i = 0;
  if (reinterpret_cast<uintptr_t>(to) % 64 == 0)
    for (; i + 64 <= bytes; i += 64)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  std::memcpy(to + i, from + i, size_t(bytes - i));
  _mm_sfence();
}

struct V {
  using Vector = __m512i;
  static constexpr VectorForm form{6, 0};
  static Vector load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void store(uint8_t* p, Vector x) { _mm512_storeu_si512(p, x); }
  static void past(uint8_t* p, Vector x) { _mm512_stream_si512(reinterpret_cast<__m512i*>(p), x); }
  static Vector index(const std::array<uint8_t, 64>& i) { return _mm512_load_si512(i.data()); }
  static Vector choose(Vector a, Vector b, Vector index) { return _mm512_permutex2var_epi8(a, index, b); }
  static Vector matrix(const ModePlan::Term& t) { return _mm512_set1_epi64(int64_t(t.matrix)); }
  static Vector add(Vector sum, Vector x, Vector matrix) {
    return _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8(x, matrix, 0));
  }
  template <int bytes>
  static void copy_past(uint8_t* to, const uint8_t* from) {
    for (int i = 0; i < bytes; i += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
};

struct Words {
  static constexpr auto stream = copy_past_caches;
  template <class L>
  static constexpr PackStrip pack = pack_shuffles<L>;
  template <class L>
  static constexpr UnpackStrip unpack = unpack_shuffles<L>;
};

bool runs_here() {
  return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("gfni");
}

}  // namespace

constinit const Driver avx512_driver = [] {
  Driver driver = shuffles_driver<Words>("avx512", runs_here);
  driver.run_plan = run_plan<V>;
  driver.vectors = V::form;
  return driver;
}();

}  // namespace mxfp4
