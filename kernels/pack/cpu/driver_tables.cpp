// Vectors of two 64-bit words, for which a compiler finds instructions of any processor. Bits change places by shifts
// and masks.
#include <cstring>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/run_route.h"

namespace mxfp4 {

namespace {

/// Those bits of a word whose number does not have the bit `lane`, counted in nibbles.
constexpr uint64_t without(int lane) { return ~uint64_t(0) / ((uint64_t(1) << (4 << lane)) + 1); }

struct V {
  using Vector [[gnu::vector_size(16)]] = uint64_t;
  using Split = Vector;
  using Bytes [[gnu::vector_size(16)]] = uint8_t;
  static constexpr VectorForm form{4, 0, Mixing::shifts, false, 3, 2, 0, 6, 4};
  static Vector load(const uint8_t* p) {
    Vector x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static void store(uint8_t* p, Vector x) { std::memcpy(p, &x, sizeof(x)); }
  template <int lane>
  [[gnu::always_inline]] static void exchange(Vector& a, Vector& b) {
    if constexpr (lane < 4) {
      const Vector x = ((a >> (4 << lane)) ^ b) & without(lane);
      b ^= x;
      a ^= x << (4 << lane);
    } else {
      const Vector x = a;
      a = Vector{x[0], b[0]};
      b = Vector{x[1], b[1]};
    }
  }
  template <int lane>
  [[gnu::always_inline]] static void zip(Vector& a, Vector& b) {
    Bytes x = Bytes(a), y = Bytes(b);
    Shuffles<Bytes, 16>::template zip<lane>(x, y);
    a = Vector(x);
    b = Vector(y);
  }
  static Split split(Vector x) { return x; }
  template <int kind>
  static constexpr bool has =
      kind == Route::begin || kind == Route::shift || kind == Route::same || kind == Route::still;
  template <int kind>
  static Vector add(Vector sum, const Split& x, const Route::Term& t) {
    const int by = int8_t(t.by[0]);
    const Vector share = (by < 0 ? x >> -by : x << by) & load(t.bits.data());
    return kind == Route::begin || kind == Route::same ? share : sum | share;
  }
};

}  // namespace

constinit const Driver tables_driver = {"tables", [] { return true; }, run_route<V>, V::form};

}  // namespace mxfp4
