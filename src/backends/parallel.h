// The tensor-parallel sizes that an engine supports for a model, and the number of GPUs that a model needs.
#pragma once

#include <cstdint>
#include <vector>

namespace mxfp4 {

struct Backend;
struct Model;
struct MoeLayer;

/// Whether each of `size` ranks holds whole groups of a layer's intermediate columns.
bool splits(const Model& model, const MoeLayer& layer, int size);

/// Whether vLLM and SGLang start on `size` ranks: `size` divides the attention heads, and `size` divides the key-value
/// heads or the reverse. True if the config does not give heads.
bool heads_divide(const Model& model, int size);

/// The sizes up to 64 with which the engines start, and whose ranks hold whole groups of every layer.
std::vector<int> tp_sizes(const Model& model);

/// The memory that serving needs and that a GPU has.
struct Load {
  int64_t model_bytes = 0;  // weights of all ranks
  int64_t gpu_bytes = 0;    // memory of one GPU; 0: no limit
};

/// The smallest tensor-parallel size on which the weights leave a tenth of each GPU free and every layer can be served;
/// 0 if there is none.
int gpus_needed(const Backend& backend, const Model& model, const Load& load);

/// The smallest number of GPUs that hold the weights if each has whole experts; 0 if there is none.
int expert_parallel_gpus(const Model& model, const Load& load);

}  // namespace mxfp4
