// The CPU's drivers: ways to move a strip (see strip.h) between its staged rows and the packed matrix. All drivers
// write the same bytes, derived from the three functions of a layout. They differ in speed and in the instructions that
// they need.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/layouts/layouts.h"
#include "kernels/layouts/matrix.h"
#include "kernels/pack/cpu/mode_plan.h"

namespace mxfp4 {

/// Packs strip tn of a matrix into its words in `packed`; UnpackStrip reverses it. The matrix has storage shape s, and
/// a strip has tile_n rows of s.b bytes. next: the rows of the next strip, which the driver prefetches; null data:
/// none.
using PackStrip = void (*)(const uint8_t* strip, Shape s, int64_t tn, uint8_t* packed, const Rows& next);
using UnpackStrip = void (*)(const uint8_t* packed, Shape s, int64_t tn, uint8_t* strip);

/// One entry per layout, by its place in the variant; null for layouts that have no words (is_plain).
struct Driver {
  const char* name;  // "tables"
  bool (*runs_here)();
  std::array<PackStrip, std::variant_size_v<Layout>> pack;
  std::array<UnpackStrip, std::variant_size_v<Layout>> unpack;
  /// Copies past the caches, as far as the alignment of `to` permits, because packed bytes are not read again soon.
  /// Null if the driver has no such copy or gains nothing.
  void (*stream)(uint8_t* to, const uint8_t* from, int64_t bytes) = nullptr;
  /// Runs layouts by modes that shuffles make faster. Null: tables are used.
  RunPlan run_plan = nullptr;
  VectorForm vectors = {};
};

/// Every driver of this build, the fastest first; the last runs everywhere.
const std::vector<const Driver*>& drivers();

/// The first driver that runs here, or the driver that the environment variable MXFP4_PACK_DRIVER names. Throws
/// std::runtime_error if the named driver does not exist or does not run here.
const Driver& chosen_driver();

extern const Driver tables_driver;
// Each driver as defined in its file, with nulls for layouts that it does not support. Only builds for its processor
// have it.
extern const Driver avx2_driver;
extern const Driver avx512_driver;  // AVX-512 VBMI and GFNI
extern const Driver neon_driver;    // AArch64
extern const Driver sve_driver;     // AArch64 with stores of SVE

}  // namespace mxfp4
