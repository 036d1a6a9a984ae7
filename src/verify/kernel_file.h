// verify --save: the batches that level kernels computes, with their correct results, as a test for an engine's own
// kernel.
#pragma once

#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/moe/moe.h"
#include "src/checkpoint/safetensors.h"

namespace mxfp4 {

/// A safetensors file. Batch N has these tensors:
/// - N.x, F32 [tokens, hidden]: The inputs, exact in bf16.
/// - N.ids, I32, and N.weights, F32 [tokens, top_k]: The chosen experts (-1: none) and their factors, with
///   routed scaling.
/// - N.out, F64 [tokens, hidden]: The layer's result.
///
/// The metadata's N.layer is the layer's module.
class KernelFile {
 public:
  /// Adds a batch, unless another set added it before. forced: see KernelCheck.
  void add(const std::string& layer, bool forced, const Routing& routing, std::span<const float> x,
           std::span<const double> out);
  bool empty() const { return batches_.empty(); }
  std::string text() const;

 private:
  template <class T>
  void put(const char* name, Dtype dtype, int64_t tokens, std::span<const T> values);

  std::set<std::tuple<std::string, int64_t, bool>> batches_;
  std::vector<Tensor> tensors_;
  Metadata metadata_ = {{"format", "pt"}};
  std::string data_;
};

}  // namespace mxfp4
