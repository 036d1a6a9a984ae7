// Vectors of AVX2. A table of 16 entries gives the bits that a nibble of one plane adds to another.
#include <immintrin.h>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/run_route.h"

namespace mxfp4 {

namespace {

struct V {
  using Vector = __m256i;
  struct Split {
    __m256i nibble[2];
  };
  static constexpr VectorForm form{5, 4};
  static Vector twice(const uint8_t* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Vector load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store(uint8_t* p, Vector x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static void past(uint8_t* p, Vector x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), x); }
  static void end_past() { _mm_sfence(); }
  template <int lane>
  [[gnu::always_inline]] static void exchange(Vector& a, Vector& b) {
    const Vector x = a;
    if constexpr (lane == 0) {
      const Vector low = _mm256_set1_epi8(15);
      a = _mm256_or_si256(_mm256_and_si256(low, x), _mm256_andnot_si256(low, _mm256_slli_epi16(b, 4)));
      b = _mm256_or_si256(_mm256_and_si256(low, _mm256_srli_epi16(x, 4)), _mm256_andnot_si256(low, b));
    } else if constexpr (lane == 1) {
      const Vector low = _mm256_set1_epi16(0xFF);
      a = _mm256_or_si256(_mm256_and_si256(x, low), _mm256_slli_epi16(b, 8));
      b = _mm256_or_si256(_mm256_srli_epi16(x, 8), _mm256_andnot_si256(low, b));
    } else if constexpr (lane == 2) {
      a = _mm256_blend_epi16(x, _mm256_slli_epi32(b, 16), 0xAA);
      b = _mm256_blend_epi16(_mm256_srli_epi32(x, 16), b, 0xAA);
    } else if constexpr (lane == 3) {
      a = _mm256_blend_epi32(x, _mm256_slli_epi64(b, 32), 0xAA);
      b = _mm256_blend_epi32(_mm256_srli_epi64(x, 32), b, 0xAA);
    } else if constexpr (lane == 4) {
      a = _mm256_unpacklo_epi64(x, b);
      b = _mm256_unpackhi_epi64(x, b);
    } else {
      a = _mm256_permute2x128_si256(x, b, 0x20);
      b = _mm256_permute2x128_si256(x, b, 0x31);
    }
  }
  static Vector sorted(Vector x, const uint8_t* index) { return _mm256_shuffle_epi8(x, twice(index)); }
  static Vector swapped(Vector x) { return _mm256_permute4x64_epi64(x, 0xD8); }
  static Split split(Vector x) {
    const Vector low = _mm256_set1_epi8(15);
    return {{_mm256_and_si256(x, low), _mm256_and_si256(_mm256_srli_epi16(x, 4), low)}};
  }
  template <int kind>
  static constexpr bool has = kind == Route::begin_low || kind == Route::low || kind == Route::high;
  template <int kind>
  static Vector add(Vector sum, const Split& x, const Route::Term& t) {
    const Vector share = _mm256_shuffle_epi8(twice(t.by.data()), x.nibble[kind == Route::high]);
    return kind == Route::begin_low ? share : _mm256_or_si256(sum, share);
  }
};

}  // namespace

constinit const Driver avx2_driver = {"avx2", [] { return bool(__builtin_cpu_supports("avx2")); }, run_route<V>,
                                      V::form};

}  // namespace mxfp4
