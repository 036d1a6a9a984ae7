// The CPU's drivers: vectors of an instruction set, with which routes are run. All drivers write the same bytes. They
// differ in speed and in the instructions that they need.
#pragma once

#include <vector>

#include "kernels/pack/cpu/route.h"

namespace mxfp4 {

struct Driver {
  const char* name;  // "tables"
  bool (*runs_here)();
  RunRoute run_route = nullptr;  // null: units are moved one by one
  VectorForm vectors = {};
};

/// Every driver of this build, the fastest first; the last runs everywhere.
const std::vector<const Driver*>& drivers();

/// The first driver that runs here, or the driver that the environment variable MXFP4_PACK_DRIVER names. Throws
/// std::runtime_error if the named driver does not exist or does not run here.
const Driver& chosen_driver();

extern const Driver tables_driver;
// Only builds for their processor have these.
extern const Driver avx2_driver;
extern const Driver avx512_driver;  // AVX-512 VBMI and GFNI
extern const Driver neon_driver;    // AArch64

}  // namespace mxfp4
