#include "tests/bench/moe_shapes.h"

#include <set>
#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

std::vector<PaddedShape> padded_shapes(const MoeConfig& shape) {
  std::vector<PaddedShape> shapes;
  std::set<CudaReader> seen;
  for (const Backend* backend : backends()) {
    const KernelFormat* format = backend->kernel;
    if (!format || format->cuda == CudaReader::none || std::string("vllm") != backend->engine) continue;
    if (!seen.insert(format->cuda).second) continue;
    MoeConfig c = shape;
    const LayerSize padded = padded_size(*backend, {c.hidden, c.intermediate});
    c.padded_hidden = padded.hidden;
    c.padded_intermediate = padded.intermediate;
    const W13Order order = format->w13.value_or(W13Order{});
    c.w13_block = order.block;
    c.w13_up_first = order.up_first;
    shapes.push_back({format, c});
  }
  return shapes;
}

}  // namespace mxfp4
