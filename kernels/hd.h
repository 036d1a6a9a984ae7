// HD marks a function that the host and, under nvcc, the device can both call.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define MXFP4_HD __host__ __device__
#else
#define MXFP4_HD
#endif

namespace mxfp4 {

MXFP4_HD constexpr int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

}  // namespace mxfp4
