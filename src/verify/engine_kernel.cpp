#include "src/verify/engine_kernel.h"

#include <algorithm>

namespace mxfp4 {

namespace {

constexpr EngineKernel engine_kernels[] = {
    {"marlin", "sglang", "", "marlin", true},
    {"marlin", "", "", "marlin"},
    {"marlin-fp8", "", "", "marlin-fp8"},
    {"flashinfer-cutlass", "", "v1", "flashinfer-sm90-v1"},
    {"flashinfer-cutlass", "", "v2", "flashinfer-sm90-v2"},
    {"flashinfer-humming", "", "", "flashinfer-humming"},
    {"flashinfer-cutlass-mxfp8", "", "", "flashinfer-cutlass-sm100"},
    {"flashinfer-trtllm", "", "", "flashinfer-trtllm"},
    {"flashinfer-cutedsl", "", "", "flashinfer-cutedsl"},
    {"triton-hopper", "transformers", "a", "triton-hopper-a-strided"},
    {"triton-hopper", "transformers", "b", "triton-hopper-b-strided"},
    {"triton-hopper", "transformers", "c", "triton-hopper-c-strided"},
    {"triton-hopper", "", "a", "triton-hopper-a"},
    {"triton-hopper", "", "b", "triton-hopper-b"},
    {"triton-hopper", "", "c", "triton-hopper-c"},
    {"triton-hopper", "sglang", "b64", "triton-hopper-b"},
    {"triton-hopper", "sglang", "c64", "triton-hopper-c"},
    {"triton-hopper", "", "a-w4", "triton-hopper-a-w4"},
    {"triton-hopper", "", "b-w4", "triton-hopper-b-w4"},
    {"triton-hopper", "", "c-w4", "triton-hopper-c-w4"},
    {"triton-blackwell", "", "", "triton-blackwell"},
    {"deepgemm", "", "", "deepgemm"},
    {"deepgemm-mega", "", "", "deepgemm-mega"},
    {"aiter-a16w4", "", "", "aiter-a16w4"},
    {"aiter-w4a4", "", "", "aiter-w4a4"},
    {"vllm-cpu", "", "", "vllm-cpu"},
};

}  // namespace

const EngineKernel* find_engine_kernel(const Backend& b) {
  const auto is = [](std::string_view pattern, std::string_view name) { return pattern.empty() || pattern == name; };
  for (const EngineKernel& k : engine_kernels)
    if (is(k.backend, b.name) && is(k.engine, b.engine) && is(k.layout_version, b.layout_version)) return &k;
  return nullptr;
}

W13Order order_read(const EngineKernel& kernel, const Model& model) {
  const Fragment& fragment = *find_fragment(kernel.fragment);
  if (!fragment.w13_as_loaded) return fragment.w13;
  return {model.pairs && !kernel.halves ? 1 : 0, false};
}

MoeConfig kernel_config(const EngineKernel& kernel, const Model& model, const MoeLayer& layer, LayerSize padded) {
  const W13Order order = order_read(kernel, model);
  MoeConfig c;
  c.experts = int64_t(layer.experts.size()), c.hidden = layer.hidden, c.intermediate = layer.intermediate;
  c.padded_hidden = padded.hidden, c.padded_intermediate = padded.intermediate;
  c.w13_block = order.block, c.w13_up_first = order.up_first;
  c.top_k = int(std::clamp<int64_t>(model.router.top_k, 1, c.experts));
  return c;
}

}  // namespace mxfp4
