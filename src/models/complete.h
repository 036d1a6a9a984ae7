// Whether a checkpoint has all that its config promises and its own layers imply. By names, shapes and config alone.
#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/models/layer_kinds.h"
#include "src/models/layer_names.h"

namespace mxfp4 {

/// One cause: "model.layers.23", "missing; config.json says num_hidden_layers = 24".
struct Lack {
  std::string where, what;
  std::string stack = {};               // its root, if the cause lies in layers
  std::vector<int64_t> layers = {};     // their numbers
  std::vector<std::string> parts = {};  // modules and tensors that each of them lacks
  bool is_certain = true;               // false: most layers of the kind lack it, and no key of the config says why
};

/// The missing tensors and layers. Empty if nothing is missing, or if the config counts no layers.
std::vector<Lack> find_lacks(const Checkpoint& checkpoint);

/// The lacks as errors, or as warnings if they are allowed, but those that are in `problems` already. True if there are
/// any. One that is not certain is a warning and does not count.
bool check_complete(const Checkpoint& checkpoint, bool allowed, Problems& problems);

/// Files that engines read, such as the tokenizer, without contents or with contents that are no JSON. Of other files a
/// warning is enough.
void check_small_files(const Checkpoint& checkpoint, std::vector<Lack>& lacks, Problems& problems);

/// The part of a config that describes the main layers, and its counts.
struct CountedLayers {
  const Json* config = nullptr;
  const char* key = "";  // "num_hidden_layers"
  int64_t layers = 0;    // 0: not known
  int64_t mtp = 0;       // layers of multi-token prediction
  const char* mtp_key = "";
};
CountedLayers counted_layers(const Json& config, const LayerStack& main);

/// Layers that others of their kind prove incomplete: a block, a module or a tensor that all of the kind have but
/// these. Main layers are those below `layers`; `attributes` tell kinds apart.
void compare_layers(const LayerStack& stack, int64_t layers, const std::vector<LayerAttribute>& attributes,
                    std::vector<Lack>& lacks);

/// Modules and tensors that are there without those they work with. is_quantized: the config says how.
void check_partners(const LayerStack& stack, bool is_quantized, std::vector<Lack>& lacks);

/// Layers of any transformer have attention, or something in its place, and a norm before it.
void check_blocks(const LayerStack& stack, const Json& config, std::vector<Lack>& lacks);

/// Compares each layer with the config's keys and its model type. `first`: the number of the stack's layer 0 in lists
/// of the config that go over all layers.
void check_rules(const LayerStack& stack, int64_t first, const Json& config, std::vector<Lack>& lacks);

/// A layer of multi-token prediction is a whole layer: in each block that it has, what all main layers have there.
void compare_mtp(const LayerStack& main, int64_t layers, const LayerStack& stack, std::vector<Lack>& lacks);

/// Sizes that differ from the config's: fewer rows of the embedding and the head than its vocabulary, another hidden
/// size of norms. `parent`: the names before the layers' root, "model.".
void check_outer_sizes(const Checkpoint& checkpoint, const std::string& parent, const Json& config,
                       std::vector<Lack>& lacks);
void check_layer_sizes(const LayerStack& stack, const Json& config, std::vector<Lack>& lacks);

/// Adds a lack if a layer has fewer experts than the config counts. The first `layers` layers are main layers, the
/// others are for multi-token prediction. Layers of MXFP4 experts are left out, because their router counts them.
void count_experts(const LayerStack& stack, int64_t layers, const Json& config, std::vector<Lack>& lacks);

/// Experts without a tensor that the layer's others have, and gaps in their numbers.
void check_experts(const LayerStack& stack, std::vector<Lack>& lacks);

}  // namespace mxfp4
