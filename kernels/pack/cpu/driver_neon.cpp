// Vectors of Advanced SIMD. Planes give bits to one another by shifts, or by tables for nibbles.
#include <arm_neon.h>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/run_route.h"

namespace mxfp4 {

namespace {

struct V : Shuffles<uint8x16_t, 16> {
  using Vector = uint8x16_t;
  using Split = uint8x16_t;
  using StraightSteps = NeonSteps;
  static constexpr VectorForm form{4, 4, Mixing::cheapest, false, 4, 4, 4};
  static Vector load(const uint8_t* p) { return vld1q_u8(p); }
  static void store(uint8_t* p, Vector x) { vst1q_u8(p, x); }
  template <int lane>
  [[gnu::always_inline]] static void exchange(Vector& a, Vector& b) {
    const Vector x = a;
    if constexpr (lane > 0) return shuffle<exchanged, lane>(a, b);
    a = vsliq_n_u8(x, b, 4);
    b = vsriq_n_u8(b, x, 4);
  }
  static Vector sorted(Vector x, const uint8_t* index) { return vqtbl1q_u8(x, vld1q_u8(index)); }
  static Split split(Vector x) { return x; }
  template <int kind>
  static constexpr bool has = true;
  template <int kind>
  static Vector add(Vector sum, Split x, const Route::Term& t) {
    const Vector by = load(t.by.data()), bits = load(t.bits.data());
    if constexpr (kind >= Route::right) return vsriq_n_u8(sum, x, kind - Route::right + 1);
    if constexpr (kind >= Route::left && kind < Route::right) return vsliq_n_u8(sum, x, kind - Route::left + 1);
    if constexpr (kind == Route::same) return x;
    if constexpr (kind == Route::still) return vbslq_u8(bits, x, sum);
    if constexpr (kind == Route::begin || kind == Route::shift) {
      const Vector shifted = vshlq_u8(x, vreinterpretq_s8_u8(by));
      return kind == Route::begin ? shifted : vbslq_u8(bits, shifted, sum);
    }
    const Vector found = vqtbl1q_u8(by, kind == Route::high ? vshrq_n_u8(x, 4) : vandq_u8(x, vdupq_n_u8(15)));
    return kind == Route::begin_low ? found : vbslq_u8(bits, found, sum);
  }
};

}  // namespace

constinit const Driver neon_driver = {"neon", [] { return true; }, run_route<V>, V::form};

}  // namespace mxfp4
