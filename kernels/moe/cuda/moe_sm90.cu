// The MoE products on Hopper words (FlashInfer SM90 v1 and v2, Humming, Triton Hopper): wgmma for many tokens, mma.sync
// for few. Marlin words also use wgmma here if there are many tokens. Compiled for sm_90a alone.
#include "kernels/moe/cuda/moe_launch.h"
#include "kernels/moe/cuda/moe_stream.cuh"
#include "kernels/moe/cuda/moe_wgmma.cuh"

namespace mxfp4 {
namespace {

template <OperandReader Reader, int kTokens, int kWarps>
void stream_tokens(const GemmArgs& args, bool gated, int max_tiles, cudaStream_t stream) {
  const dim3 grid(row_tiles(args, gated, 2), unsigned(max_tiles));
  launch(gated ? stream_kernel<Reader, kTokens, kWarps, true> : stream_kernel<Reader, kTokens, kWarps, false>, grid,
         kWarps * 32, StreamRing<Reader, kTokens, kWarps>::shared, stream, args);
}

template <OperandReader Reader, int kTokens>
void wgmma_tokens(const GemmArgs& args, bool gated, int max_tiles, cudaStream_t stream) {
  const dim3 grid(row_tiles(args, gated, wgmma_units), unsigned(max_tiles));
  launch(gated ? wgmma_kernel<Reader, kTokens, true> : wgmma_kernel<Reader, kTokens, false>, grid, wgmma_threads,
         WgmmaStage<Reader, kTokens>::shared, stream, args);
}

template <OperandReader Reader>
void launch_wgmma(const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles, cudaStream_t stream) {
  if (plan.tokens == 32) return wgmma_tokens<Reader, 32>(args, gated, max_tiles, stream);
  if (plan.tokens == 64) return wgmma_tokens<Reader, 64>(args, gated, max_tiles, stream);
  if (plan.tokens == 128) return wgmma_tokens<Reader, 128>(args, gated, max_tiles, stream);
  throw std::invalid_argument("no such wgmma kernel");
}

template <OperandReader Reader>
void launch_reader(const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles, cudaStream_t stream) {
  if (plan.kernel == MoeKernel::wgmma) return launch_wgmma<Reader>(args, plan, gated, max_tiles, stream);
  if (plan.tokens == 8 && few_blocks(args, gated, max_tiles))
    return stream_tokens<Reader, 8, 8>(args, gated, max_tiles, stream);
  if (plan.tokens == 8) return stream_tokens<Reader, 8, 4>(args, gated, max_tiles, stream);
  if (plan.tokens == 16) return stream_tokens<Reader, 16, 4>(args, gated, max_tiles, stream);
  throw std::invalid_argument("no such SM90 kernel");
}

}  // namespace

void launch_sm90(CudaReader reader, const GemmArgs& args, const MoePlan& plan, bool gated, int max_tiles,
                 cudaStream_t stream) {
  if (reader == CudaReader::marlin)
    launch_wgmma<MarlinReader>(args, plan, gated, max_tiles, stream);
  else if (reader == CudaReader::humming)
    launch_reader<HummingReader>(args, plan, gated, max_tiles, stream);
  else if (reader == CudaReader::humming_wgmma)
    launch_reader<HummingWgmmaReader>(args, plan, gated, max_tiles, stream);
  else if (reader == CudaReader::flashinfer_v1)
    launch_reader<FlashinferV1Reader>(args, plan, gated, max_tiles, stream);
  else if (reader == CudaReader::flashinfer_v2)
    launch_reader<FlashinferV2Reader>(args, plan, gated, max_tiles, stream);
  else
    launch_reader<TritonReader>(args, plan, gated, max_tiles, stream);
}

}  // namespace mxfp4
