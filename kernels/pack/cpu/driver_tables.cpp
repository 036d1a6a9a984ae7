// Vectors of two 64-bit words, for which a compiler finds instructions of any processor. Bits change places by shifts
// and masks. If the bits of units move otherwise than by nibbles, tables (strips.h) are faster.
#include <cstring>

#include "kernels/pack/cpu/driver.h"
#include "kernels/pack/cpu/run_route.h"

namespace mxfp4 {

namespace {

/// Those bits of a word whose number does not have the bit `lane`, counted in nibbles.
constexpr uint64_t without(int lane) { return ~uint64_t(0) / ((uint64_t(1) << (4 << lane)) + 1); }

struct V {
  using Vector [[gnu::vector_size(16)]] = uint64_t;
  static constexpr VectorForm form{4, 0, Mixing::none, false};
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
};

}  // namespace

constinit const Driver tables_driver = {"tables", [] { return true; }, run_route<V>, V::form};

}  // namespace mxfp4
