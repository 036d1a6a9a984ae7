// The registry of checkpoint families: one line each, the first that matches is taken. A family is told by its tensors
// where they suffice, and by its config where others store the same tensors.
#pragma once

#include <optional>

#include "src/models/model.h"

namespace mxfp4 {

extern const Family modelslim, mlx, gpt_oss_quark, fused, gpt_oss, deepseek_v41, deepseek_v4, kimi_k3,
    compressed_tensors, ling, mimo, quark, modelopt;

inline const Family families[] = {modelslim,   mlx,     gpt_oss_quark,      fused, gpt_oss, deepseek_v41,
                                  deepseek_v4, kimi_k3, compressed_tensors, ling,  mimo,    quark,
                                  modelopt};

/// Whether any expert's tensor ends so ("weight_packed").
bool has_expert_suffix(const Checkpoint& checkpoint, std::string_view suffix);

/// Reads experts that stand one by one under the names that are found, else under `usual`; then the config's activation
/// and router, and compares its sizes. `hidden`: the config's key of the experts' hidden size.
void read_spelled_experts(const Checkpoint& checkpoint, const ExpertNames& usual, const char* hidden, Model& model,
                          Problems& problems);

/// Activation and router as the config has them; keys of another type than theirs are problems.
void read_settings(const Checkpoint& checkpoint, Model& model, Problems& problems);

/// Model types whose order of gate and up rows is known.
struct KnownOrders {
  std::vector<std::string_view> pairs, halves;
};

/// Whether gate and up rows that share a tensor are stored as gate, up, gate, up ..: by --gate-up, the config's
/// inference_moe_w13_interleaved, or the model type. None, and a problem, if nothing tells: no order is assumed.
std::optional<bool> stored_in_pairs(const Checkpoint& checkpoint, const ModelOptions& options, const KnownOrders& known,
                                    const char* tensors, Problems& problems);

/// The first of the keys that families have for it: "n_routed_experts", "num_experts", "num_local_experts".
const char* experts_key(const Json& config);

/// A JSON file of the checkpoint; nothing if it is missing.
std::optional<Json> read_companion(const Checkpoint& checkpoint, const std::string& name);

/// Whether `json` holds `key` somewhere, at any depth.
bool has_key(const Json& json, const std::string& key);

/// Whether `json` holds `key` with this text somewhere, at any depth.
bool mentions(const Json& json, std::string_view key, std::string_view text);

/// MXFP4 experts under compressed-tensors' names: the config must say so too.
void check_compressed_tensors(const Checkpoint& checkpoint, const Model& model, Problems& problems);

/// All experts of a layer in one tensor: MODULE + w13 + codes, for example MODULE.gate_up_proj_blocks.
/// Codes are [E, rows, columns/2], or [E, rows, columns/32, 16].
struct StackedNames {
  const char *w13, *w2;               // ".gate_up_proj", ".down_proj"
  const char *codes, *scales, *bias;  // "_blocks", "_scales", "_bias"
};

/// Reads one layer's tensors; `pairs`: w13's rows are gate, up, gate, up .., else all of gate, then up.
void read_stacked_layer(const Checkpoint& checkpoint, const StackedNames& names, MoeLayer layer, bool pairs,
                        Model& model, Problems& problems);

}  // namespace mxfp4
