#include "src/verify/kernel_config.h"

#include <algorithm>

namespace mxfp4 {

W13Order order_read(const Backend& backend, const Model& model) {
  return backend.kernel->w13.value_or(W13Order{model.pairs && !backend.halves ? 1 : 0, false});
}

MoeConfig kernel_config(const Backend& backend, const Model& model, const MoeLayer& layer, LayerSize padded) {
  const W13Order order = order_read(backend, model);
  const int64_t experts = int64_t(layer.experts.size());
  return {.experts = experts,
          .hidden = layer.hidden,
          .intermediate = layer.intermediate,
          .padded_hidden = padded.hidden,
          .padded_intermediate = padded.intermediate,
          .w13_block = order.block,
          .w13_up_first = order.up_first,
          .top_k = int(std::clamp<int64_t>(model.router.top_k, 1, experts))};
}

}  // namespace mxfp4
