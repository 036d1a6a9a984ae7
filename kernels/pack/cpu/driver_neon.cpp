// Vectors of Advanced SIMD. A table of 16 entries gives the bits that a nibble of one plane adds to another.
#include <arm_neon.h>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/run_route.h"

namespace mxfp4 {

namespace {

struct V {
  using Vector = uint8x16_t;
  struct Split {
    uint8x16_t nibble[2];
  };
  static constexpr VectorForm form{4, 4, true, false, 4};
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
  static Vector sorted(Vector x, const uint8_t* index) { return vqtbl1q_u8(x, vld1q_u8(index)); }
  static Split split(Vector x) { return {{vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8(x, 4)}}; }
  static Vector add(Vector sum, const Split& x, const Route::Term& t, int used) {
    if (used & 1) sum = vorrq_u8(sum, vqtbl1q_u8(vld1q_u8(t.nibble[0].data()), x.nibble[0]));
    if (used & 2) sum = vorrq_u8(sum, vqtbl1q_u8(vld1q_u8(t.nibble[1].data()), x.nibble[1]));
    return sum;
  }
};

}  // namespace

constinit const Driver neon_driver = {"neon", [] { return true; }, run_route<V>, V::form};

}  // namespace mxfp4
