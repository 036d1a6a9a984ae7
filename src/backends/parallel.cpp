#include "src/backends/parallel.h"

#include <algorithm>

#include "src/backends/backend.h"

namespace mxfp4 {

namespace {

constexpr int most_gpus = 64;  // of an advised size

bool is_enough(const Load& load, int gpus) {
  return load.gpu_bytes == 0 || double(load.model_bytes) / gpus <= 0.9 * double(load.gpu_bytes);
}

}  // namespace

bool splits(const Model& model, const MoeLayer& layer, int size) {
  if (layer.intermediate % group != 0) return false;
  const int64_t groups = layer.intermediate / group;
  if (!model.pairs) return groups % size == 0;
  const int64_t share = (groups + size - 1) / size;  // the last rank may have less, but not nothing
  return share * (size - 1) < groups;
}

bool heads_divide(const Model& model, int size) {
  const auto [heads, shared] = model.attention;
  if (heads % size != 0) return false;
  return shared == 0 || shared % size == 0 || size % shared == 0;
}

std::vector<int> tp_sizes(const Model& model) {
  std::vector<int> sizes;
  for (int size = 1; size <= most_gpus; ++size)
    if (heads_divide(model, size) && std::all_of(model.layers.begin(), model.layers.end(),
                                                 [&](const MoeLayer& layer) { return splits(model, layer, size); }))
      sizes.push_back(size);
  return sizes;
}

int gpus_needed(const Backend& backend, const Model& model, const Load& load) {
  for (const int size : tp_sizes(model))
    if (is_enough(load, size) && std::all_of(model.layers.begin(), model.layers.end(), [&](const MoeLayer& layer) {
          return refusal(backend, model, layer, size).empty() && share_refusal(backend, layer, size).empty();
        }))
      return size;
  return 0;
}

int expert_parallel_gpus(const Model& model, const Load& load) {
  for (int gpus = 1; gpus <= most_gpus; ++gpus)
    if (is_enough(load, gpus) && heads_divide(model, gpus) &&
        std::all_of(model.layers.begin(), model.layers.end(),
                    [&](const MoeLayer& layer) { return int64_t(layer.experts.size()) % gpus == 0; }))
      return gpus;
  return 0;
}

}  // namespace mxfp4
