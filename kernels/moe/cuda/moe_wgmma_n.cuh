// wgmma.mma_async m64nNk16 with A (weights) in registers and B (tokens) in shared memory, for the N used here.
#pragma once

#include <cstdint>

namespace mxfp4 {

/// d += a * b. d[4j..4j+3] is the fragment of tokens 8j..8j+7, as mma.m16n8k16 has it, for this warp's 16 rows.
template <int kTokens>
struct Wgmma;

#define MXFP4_D8(i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define MXFP4_WGMMA(N, REGISTERS, A0, A1, A2, A3, B, ...)                                                          \
  template <>                                                                                                      \
  struct Wgmma<N> {                                                                                                \
    __device__ static void multiply(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b) {                       \
      asm volatile(                                                                                                \
          "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                                               \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS "}, {" A0 ", " A1 ", " A2 ", " A3 \
          "}, " B ", p, 1, 1, 0;\n}"                                                                               \
          : __VA_ARGS__                                                                                            \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                   \
    }                                                                                                              \
  };
#define MXFP4_R16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MXFP4_R32 \
  MXFP4_R16       \
  ", "            \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define MXFP4_R48 \
  MXFP4_R32       \
  ", "            \
  "%16, %17, %18, %19, %20, %21, %22, %23"
#define MXFP4_R64 \
  MXFP4_R48       \
  ", "            \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define MXFP4_R80 \
  MXFP4_R64       \
  ", "            \
  "%32, %33, %34, %35, %36, %37, %38, %39"
#define MXFP4_R96 \
  MXFP4_R80       \
  ", "            \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define MXFP4_R112 \
  MXFP4_R96        \
  ", "             \
  "%48, %49, %50, %51, %52, %53, %54, %55"
#define MXFP4_R128 \
  MXFP4_R112       \
  ", "             \
  "%56, %57, %58, %59, %60, %61, %62, %63"
MXFP4_WGMMA(16, MXFP4_R16, "%8", "%9", "%10", "%11", "%12", MXFP4_D8(0))
MXFP4_WGMMA(32, MXFP4_R32, "%16", "%17", "%18", "%19", "%20", MXFP4_D8(0), MXFP4_D8(8))
MXFP4_WGMMA(48, MXFP4_R48, "%24", "%25", "%26", "%27", "%28", MXFP4_D8(0), MXFP4_D8(8), MXFP4_D8(16))
MXFP4_WGMMA(64, MXFP4_R64, "%32", "%33", "%34", "%35", "%36", MXFP4_D8(0), MXFP4_D8(8), MXFP4_D8(16), MXFP4_D8(24))
MXFP4_WGMMA(80, MXFP4_R80, "%40", "%41", "%42", "%43", "%44", MXFP4_D8(0), MXFP4_D8(8), MXFP4_D8(16), MXFP4_D8(24),
            MXFP4_D8(32))
MXFP4_WGMMA(96, MXFP4_R96, "%48", "%49", "%50", "%51", "%52", MXFP4_D8(0), MXFP4_D8(8), MXFP4_D8(16), MXFP4_D8(24),
            MXFP4_D8(32), MXFP4_D8(40))
MXFP4_WGMMA(112, MXFP4_R112, "%56", "%57", "%58", "%59", "%60", MXFP4_D8(0), MXFP4_D8(8), MXFP4_D8(16), MXFP4_D8(24),
            MXFP4_D8(32), MXFP4_D8(40), MXFP4_D8(48))
MXFP4_WGMMA(128, MXFP4_R128, "%64", "%65", "%66", "%67", "%68", MXFP4_D8(0), MXFP4_D8(8), MXFP4_D8(16), MXFP4_D8(24),
            MXFP4_D8(32), MXFP4_D8(40), MXFP4_D8(48), MXFP4_D8(56))
#undef MXFP4_WGMMA
#undef MXFP4_D8
#undef MXFP4_R16
#undef MXFP4_R32
#undef MXFP4_R48
#undef MXFP4_R64
#undef MXFP4_R80
#undef MXFP4_R96
#undef MXFP4_R112
#undef MXFP4_R128

/// Tokens x 64 codes in the 128-byte swizzle, 1024-aligned; the k16 steps are 32 bytes apart.
__device__ inline uint64_t token_descriptor(const uint8_t* tokens) {
  const uint64_t address = uint64_t(__cvta_generic_to_shared(tokens));
  return (address & 0x3ffff) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
inline constexpr int descriptor_step = 32 >> 4;

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace mxfp4
