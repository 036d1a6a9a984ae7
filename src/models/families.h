// The registry of checkpoint families. The first family that matches is used. Families match by tensors, or by the
// config if another family stores the same tensors.
#pragma once

#include <optional>

#include "src/models/model.h"

namespace mxfp4 {

extern const Family modelslim, mlx, gpt_oss_quark, fused, gpt_oss, deepseek_v41, deepseek_v4, kimi_k3, auto_round,
    compressed_tensors, ling, mimo, quark, modelopt;

inline const Family families[] = {modelslim, mlx,        gpt_oss_quark,      fused, gpt_oss, deepseek_v41, deepseek_v4,
                                  kimi_k3,   auto_round, compressed_tensors, ling,  mimo,    quark,        modelopt};

/// Whether the name of any expert's tensor ends like this ("weight_packed").
bool has_expert_suffix(const Checkpoint& checkpoint, std::string_view suffix);

/// Reads experts with separate tensors, by the names in the checkpoint, or by `usual` if none is found. Then reads the
/// activation and the router from the config, and compares its sizes. False if no experts are MXFP4.
bool read_spelled_experts(const Checkpoint& checkpoint, const ExpertNames& usual, Model& model, Problems& problems);

/// Reads activation and router from the config. Keys of a wrong type are problems.
void read_settings(const Checkpoint& checkpoint, Model& model, Problems& problems);

/// Model types whose order of gate and up rows is known.
struct KnownOrders {
  std::vector<std::string_view> pairs, halves;
};

/// Whether gate and up rows that share a tensor are stored as gate, up, gate, up ..: by --gate-up, the config's
/// inference_moe_w13_interleaved, or the model type. A problem if nothing tells, because no order is assumed, and if
/// the other two contradict the model type.
bool stored_in_pairs(const Checkpoint& checkpoint, const ModelOptions& options, const KnownOrders& known,
                     const char* tensors, Problems& problems);

/// The first key for the number of experts in the config: "n_routed_experts", "num_experts" or another.
const char* experts_key(const Json& config);

/// The config's key for the experts' hidden size: "hidden_size", or another name for it.
const char* hidden_key(const Json& config);

/// The config's key for the experts' intermediate size: "moe_intermediate_size", or another name for it. Null if there
/// is none.
const char* intermediate_key(const Json& config);

/// A JSON file of the checkpoint; nothing if it is missing.
std::optional<Json> read_companion(const Checkpoint& checkpoint, const std::string& name);

/// Whether `json` holds `key` somewhere, at any depth.
bool has_key(const Json& json, const std::string& key);

/// Whether `json` holds `key` with this text somewhere, at any depth.
bool mentions(const Json& json, std::string_view key, std::string_view text);

/// Checks that the config declares MXFP4, if MXFP4 experts have compressed-tensors' names.
void check_compressed_tensors(const Checkpoint& checkpoint, const Model& model, Problems& problems);

/// All experts of a layer in one tensor: MODULE + w13 + codes, for example MODULE.gate_up_proj_blocks.
/// Codes are [E, rows, columns/2], or [E, rows, columns/32, 16].
struct StackedNames {
  const char *w13, *w2;               // ".gate_up_proj", ".down_proj"
  const char *codes, *scales, *bias;  // "_blocks", "_scales", "_bias"
  bool bias_in_halves = false;        // also if codes and scales of w13 are in pairs
};

/// Reads one layer's tensors. `pairs`: w13's rows are gate, up, gate, up ..; else all rows of gate come before those of
/// up.
void read_stacked_layer(const Checkpoint& checkpoint, const StackedNames& names, MoeLayer layer, bool pairs,
                        Model& model, Problems& problems);

}  // namespace mxfp4
