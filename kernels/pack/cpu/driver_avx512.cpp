// Vectors of AVX-512 with byte permutations (VBMI) and bit matrices (GFNI).
#include <immintrin.h>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/run_route.h"

namespace mxfp4 {

namespace {

/// For each bit of a lane: the lanes that have it, and the lane that differs in it.
struct Exchanges {
  alignas(64) uint8_t other[6][64] = {};
  uint64_t with[6] = {};
  constexpr Exchanges() {
    for (int bit = 0; bit < 6; ++bit)
      for (int i = 0; i < 64; ++i) {
        other[bit][i] = uint8_t(i ^ 1 << bit);
        with[bit] |= uint64_t(i >> bit & 1) << i;
      }
  }
};
constexpr Exchanges exchanges;

struct V {
  using Vector = __m512i;
  using Split = __m512i;
  static constexpr VectorForm form{6, 6, Mixing::matrices};
  static Vector load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void store(uint8_t* p, Vector x) { _mm512_storeu_si512(p, x); }
  static void past(uint8_t* p, Vector x) { _mm512_stream_si512(reinterpret_cast<__m512i*>(p), x); }
  static void end_past() { _mm_sfence(); }
  static __m256i half(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static __m128i quarter(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static Vector join(const uint8_t* p, const int64_t* step, int64_t pieces) {
    if (pieces == 2) return _mm512_inserti64x4(_mm512_castsi256_si512(half(p)), half(p + step[0]), 1);
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(quarter(p)), quarter(p + step[0]), 1);
    const __m256i high =
        _mm256_inserti128_si256(_mm256_castsi128_si256(quarter(p + step[1])), quarter(p + step[0] + step[1]), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  static void part(uint8_t* p, const int64_t* step, int64_t pieces, Vector x) {
    if (pieces == 2) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(x));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + step[0]), _mm512_extracti64x4_epi64(x, 1));
      return;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_castsi512_si128(x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + step[0]), _mm512_extracti32x4_epi32(x, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + step[1]), _mm512_extracti32x4_epi32(x, 2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + step[0] + step[1]), _mm512_extracti32x4_epi32(x, 3));
  }
  template <int lane>
  [[gnu::always_inline]] static void exchange(Vector& a, Vector& b) {
    const Vector x = a;
    if constexpr (lane == 0) {  // 0xCA: low ? a bit of a : of b
      const Vector low = _mm512_set1_epi8(15);
      a = _mm512_ternarylogic_epi64(low, x, _mm512_slli_epi16(b, 4), 0xCA);
      b = _mm512_ternarylogic_epi64(low, _mm512_srli_epi16(x, 4), b, 0xCA);
    } else {
      const Vector other = _mm512_load_si512(exchanges.other[lane - 1]);
      a = _mm512_mask_permutexvar_epi8(x, exchanges.with[lane - 1], other, b);
      b = _mm512_mask_permutexvar_epi8(b, ~exchanges.with[lane - 1], other, x);
    }
  }
  static Vector sorted(Vector x, const uint8_t* index) { return _mm512_permutexvar_epi8(_mm512_load_si512(index), x); }
  static Split split(Vector x) { return x; }
  template <int kind>
  static constexpr bool has = kind == Route::begin || kind == Route::shift;
  template <int kind>
  static Vector add(Vector sum, Split x, const Route::Term& t) {
    const Vector share = _mm512_gf2p8affine_epi64_epi8(x, _mm512_broadcast_i32x4(quarter(t.by.data())), 0);
    return kind == Route::begin ? share : _mm512_xor_si512(sum, share);
  }
};

bool runs_here() {
  return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("gfni");
}

}  // namespace

constinit const Driver avx512_driver = {"avx512", runs_here, run_route<V>, V::form};

}  // namespace mxfp4
