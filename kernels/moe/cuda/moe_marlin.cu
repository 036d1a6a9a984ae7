// The MoE products on Marlin words: mma.sync m16n8k16 fragments, SM80 and later.
#include "kernels/moe/cuda/moe_launch.h"
#include "kernels/moe/cuda/moe_stream.cuh"
#include "kernels/moe/cuda/moe_tile.cuh"

namespace mxfp4 {
namespace {

template <int kTokens, int kWarps>
void stream_tokens(const GemmArgs& args, bool gated, int max_tiles, cudaStream_t stream) {
  const dim3 grid(row_tiles(args, gated, 2), unsigned(max_tiles));
  launch(
      gated ? stream_kernel<MarlinReader, kTokens, kWarps, true> : stream_kernel<MarlinReader, kTokens, kWarps, false>,
      grid, kWarps * 32, StreamRing<MarlinReader, kTokens, kWarps>::shared, stream, args);
}

template <int kTokens>
void tile_tokens(const GemmArgs& args, bool gated, int max_tiles, cudaStream_t stream) {
  const dim3 grid(row_tiles(args, gated, 2), unsigned(max_tiles));
  launch(gated ? tile_kernel<MarlinReader, kTokens, true> : tile_kernel<MarlinReader, kTokens, false>, grid,
         tile_threads, tile_shared_bytes<MarlinReader, kTokens>(), stream, args);
}

}  // namespace

void launch_marlin(const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles, cudaStream_t stream) {
  if (plan.kernel == MoeKernel::stream) {
    if (plan.tokens == 8 && few_blocks(args, gated, max_tiles))
      return stream_tokens<8, 8>(args, gated, max_tiles, stream);
    if (plan.tokens == 8) return stream_tokens<8, 4>(args, gated, max_tiles, stream);
    if (plan.tokens == 16) return stream_tokens<16, 4>(args, gated, max_tiles, stream);
  } else {
    if (plan.tokens == 32) return tile_tokens<32>(args, gated, max_tiles, stream);
    if (plan.tokens == 64) return tile_tokens<64>(args, gated, max_tiles, stream);
    if (plan.tokens == 128) return tile_tokens<128>(args, gated, max_tiles, stream);
  }
  throw std::invalid_argument("no such Marlin kernel");
}

}  // namespace mxfp4
