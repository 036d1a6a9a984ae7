// One MoE layer whose packed tensors are in GPU memory: the forward of verify and of the library.
// No CUDA header is needed here; without CUDA open_moe() throws (moe_nocuda.cpp).
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/moe/cuda/moe_storage.h"
#include "kernels/moe/moe.h"

namespace mxfp4 {

/// One batch of tokens, with addresses in GPU memory.
struct MoeBatch {
  int64_t tokens = 0;
  const void* x = nullptr;              // bf16 [tokens][hidden], aligned to 16 bytes
  const int32_t* ids = nullptr;         // [tokens][top_k]; ids of experts that the layer lacks contribute nothing
  const float* weights = nullptr;       // [tokens][top_k]
  const int32_t* expert_map = nullptr;  // [mapped]: the layer's number for an id, or -1; null: ids are these numbers
  int64_t mapped = 0;
  void* out = nullptr;        // bf16 [tokens][padded hidden], aligned to 16 bytes
  void* workspace = nullptr;  // aligned to 256 bytes; its contents do not matter
  int64_t workspace_bytes = 0;
};

class ResidentMoe {
 public:
  virtual ~ResidentMoe() = default;
  /// The least workspace for this many tokens at once.
  virtual int64_t workspace_bytes(int64_t tokens) const = 0;
  /// Computes on `stream`, a cudaStream_t. It neither waits nor allocates, so that a CUDA graph can capture it. If the
  /// workspace is smaller than for all tokens, they are computed in equal parts. Equal calls give equal bits, and a
  /// token's bits depend on the number of tokens alone, not on the other tokens.
  /// Throws std::invalid_argument if the workspace has no room for a token.
  virtual void run(const MoeBatch& batch, void* stream) const = 0;
  /// After this call only mma.sync is used, as on a GPU without wgmma. Marlin only.
  virtual void avoid_wgmma() = 0;
};

/// The addresses of `packed` are in the memory of GPU `gpu`, and stay valid. `config.hidden` counts x's columns, which
/// an engine may have padded. Waits for the GPU, to read the largest scale and to copy biases. Throws
/// std::invalid_argument with the text of moe_refusal() if that is not empty.
std::unique_ptr<ResidentMoe> open_moe(const MoeConfig& config, const KernelFormat& format, const PackedMoe& packed,
                                      int gpu);

/// The reason why GPU `gpu` cannot run the forward in an engine; empty if it can.
std::string resident_moe_missing(int gpu);

}  // namespace mxfp4
