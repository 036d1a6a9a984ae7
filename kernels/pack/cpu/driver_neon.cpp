// Vectors of Advanced SIMD. Planes give bits to one another by shifts, or by tables for nibbles.
#include <arm_neon.h>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/run_route.h"

namespace mxfp4 {

namespace {

struct V {
  using Vector = uint8x16_t;
  using Split = uint8x16_t;
  static constexpr VectorForm form{4, 4, Mixing::shifts, false, 4, true};
  static Vector load(const uint8_t* p) { return vld1q_u8(p); }
  static void store(uint8_t* p, Vector x) { vst1q_u8(p, x); }
  template <int lane>
  [[gnu::always_inline]] static void exchange(Vector& a, Vector& b) {
    const auto both = [&](auto x, auto y, auto first, auto second) __attribute__((always_inline)) {
      a = uint8x16_t(first(x, y));
      b = uint8x16_t(second(x, y));
    };
    if constexpr (lane == 0)
      both(
          a, b, [](auto x, auto y) { return vsliq_n_u8(x, y, 4); }, [](auto x, auto y) { return vsriq_n_u8(y, x, 4); });
    else if constexpr (lane == 1)
      both(
          a, b, [](auto x, auto y) { return vtrn1q_u8(x, y); }, [](auto x, auto y) { return vtrn2q_u8(x, y); });
    else if constexpr (lane == 2)
      both(
          uint16x8_t(a), uint16x8_t(b), [](auto x, auto y) { return vtrn1q_u16(x, y); },
          [](auto x, auto y) { return vtrn2q_u16(x, y); });
    else if constexpr (lane == 3)
      both(
          uint32x4_t(a), uint32x4_t(b), [](auto x, auto y) { return vtrn1q_u32(x, y); },
          [](auto x, auto y) { return vtrn2q_u32(x, y); });
    else
      both(
          uint64x2_t(a), uint64x2_t(b), [](auto x, auto y) { return vtrn1q_u64(x, y); },
          [](auto x, auto y) { return vtrn2q_u64(x, y); });
  }
  template <int lane>
  [[gnu::always_inline]] static void zip(Vector& a, Vector& b) {
    const Vector x = a;
    if constexpr (lane == 1) {
      a = vzip1q_u8(x, b);
      b = vzip2q_u8(x, b);
    } else if constexpr (lane == 2) {
      a = uint8x16_t(vzip1q_u16(uint16x8_t(x), uint16x8_t(b)));
      b = uint8x16_t(vzip2q_u16(uint16x8_t(x), uint16x8_t(b)));
    } else {
      a = uint8x16_t(vzip1q_u32(uint32x4_t(x), uint32x4_t(b)));
      b = uint8x16_t(vzip2q_u32(uint32x4_t(x), uint32x4_t(b)));
    }
  }
  template <int lane>
  [[gnu::always_inline]] static void unzip(Vector& a, Vector& b) {
    const Vector x = a;
    if constexpr (lane == 1) {
      a = vuzp1q_u8(x, b);
      b = vuzp2q_u8(x, b);
    } else if constexpr (lane == 2) {
      a = uint8x16_t(vuzp1q_u16(uint16x8_t(x), uint16x8_t(b)));
      b = uint8x16_t(vuzp2q_u16(uint16x8_t(x), uint16x8_t(b)));
    } else {
      a = uint8x16_t(vuzp1q_u32(uint32x4_t(x), uint32x4_t(b)));
      b = uint8x16_t(vuzp2q_u32(uint32x4_t(x), uint32x4_t(b)));
    }
  }
  static Vector sorted(Vector x, const uint8_t* index) { return vqtbl1q_u8(x, vld1q_u8(index)); }
  static Split split(Vector x) { return x; }
  template <int kind>
  static constexpr bool has = true;
  template <int kind>
  static Vector add(Vector sum, Split x, const Route::Term& t) {
    const Vector by = load(t.by.data()), bits = load(t.bits.data());
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
