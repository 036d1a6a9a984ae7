// The meaning of a checkpoint's names: in each MoE layer, the gate, up and down matrix of every expert.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

/// Columns that share a scale.
inline constexpr int64_t group = 32;

/// One expert's rows inside a tensor. The expert's piece is the whole tensor if it holds one expert, and an equal share
/// of a stacked tensor. Row r is at offset + r * stride within the piece. Without a tensor there are no such rows.
struct Slice {
  TensorRange piece;
  int64_t offset = 0, stride = 0;
};

/// One projection of one expert: codes [n, k/2] bytes, scales [n, k/32], bias [n].
struct Projection {
  Slice codes, scales, bias;
};

struct Expert {
  Projection gate, up, down;  // gate, up: n = intermediate, k = hidden; down: n = hidden, k = intermediate
};

/// mtp: layers of multi-token prediction, counted from 0: mtp.N, mtp.layers.N (Qwen), mtp_layers.N (Hy4), or behind the
/// main layers (GLM).
enum class LayerKind : uint8_t { model, mtp };

struct MoeLayer {
  LayerKind kind = LayerKind::model;
  int64_t index = 0;
  std::string module;  // the checkpoint's own name: "model.layers.0.mlp.experts"
  int64_t hidden = 0, intermediate = 0;
  std::vector<Expert> experts;
};

/// g = min(gate, limit); u = clamp(up, -limit, limit); out = g * sigmoid(alpha * g) * (u + beta). limit 0: none.
struct Activation {
  std::string name = "silu";
  double alpha = 1, beta = 0, limit = 0;
};

/// How a token's experts are chosen and weighted.
struct Router {
  std::string scoring = "softmax";  // softmax (over the chosen), sigmoid, sqrtsoftplus
  int64_t top_k = 0;
  bool renormalise = true;
  double scaling = 1;  // routed_scaling_factor
};

/// The number of attention heads in the config; 0: the config does not give it.
struct Attention {
  int64_t heads = 0, key_value_heads = 0;
};

struct Model {
  std::string family;      // "gpt-oss"; empty if the checkpoint has no MXFP4 experts
  std::string method;      // Family::method
  std::string model_type;  // from the config
  std::vector<MoeLayer> layers;
  std::vector<const Tensor*> rest;  // every other tensor, copied unchanged; by shard, then offset
  std::vector<std::string> notes;   // messages about unusual but accepted contents
  bool pairs = false;               // engines load w13 as gate, up, gate, up .. (GPT-OSS), not as two halves
  bool bias = false;
  Activation activation;
  Router router;
  Attention attention = {};
};

/// How convert was told to read the checkpoint. OUT's manifest records it in `source`.
struct ModelOptions {
  std::string gate_up = {};       // "interleaved", "concatenated" or empty: by model_type
  bool allow_incomplete = false;  // despite missing tensors or unintended contents; in a manifest: there were such
};

/// Calls f(name, member) for each member. The names are those of the options, with _ for -, and the manifest's. A
/// member that has its default is not in the manifest. convert's Recipe, the manifest's writer and reader, and the
/// comparison with an existing OUT follow this list.
template <class O, class F>
void visit_recorded(O& options, const F& f) {
  f("gate_up", options.gate_up);
  f("allow_incomplete", options.allow_incomplete);
}

/// A checkpoint family: recognises checkpoints by their tensors or config, and reads them.
struct Family {
  const char* name;
  bool (*matches)(const Checkpoint&);
  void (*read)(const Checkpoint&, const ModelOptions&, Model&, Problems&);
  const char* method = name;  // the family that engines convert alike
};

/// Finds the family that matches and reads the checkpoint; problems go to `problems`. A checkpoint with unreadable
/// files is not read further, since missing tensors prove nothing.
Model recognise(const Checkpoint& checkpoint, const ModelOptions& options, Problems& problems);

/// "model.layers.12.mlp.experts" -> model, 12; "mtp.0.ffn.experts" or "mtp.layers.0.mlp.experts" -> mtp, 0. Returns
/// false if the name has no such number.
bool parse_layer(std::string_view module, LayerKind& kind, int64_t& index);

/// Compares the layers' expert counts and sizes with the values of the config's keys `experts`, `hidden` and
/// `intermediate`. A layer of another size is an error; without such a key, the first layer's size is expected. Another
/// expert count is a warning, or an error if all layers agree.
void check_config(const Checkpoint& checkpoint, const Model& model, const char* experts, const char* hidden,
                  const char* intermediate, Problems& problems);

/// K of codes with rows [n] or [experts, n] of `row_elements` elements each. Reports a problem and returns 0 if codes
/// or scales are not MXFP4. Scales are [rows.., k/32]; dimensions of 1 are ignored.
int64_t check_pair(const Checkpoint& checkpoint, const Tensor& codes, std::vector<int64_t> rows, int64_t row_elements,
                   const Tensor& scales, Problems& problems);

/// U8, I8 or F4.
bool is_code_dtype(Dtype dtype);

inline constexpr int64_t max_experts = 65'536;  // of a layer

/// Whether the model may have another layer of stacked experts; else a problem. A few bytes of a header can claim any
/// number of experts, and a sparse file can then have that size.
bool has_room(const Model& model, const std::string& where, int64_t experts, Problems& problems);

/// The names of layers with a tensor for each expert, `MODULE.ID.PROJ.SUFFIX`.
struct ExpertNames {
  const char* gate;
  const char* up;
  const char* down;
  const char* codes;   // suffix: "weight"
  const char* scales;  // suffix: "scale"
};

/// A name "MODULE.ID.PROJ.SUFFIX" with ".experts" at the end of MODULE, taken apart.
struct ExpertName {
  std::string_view module, proj, suffix;
  int64_t id;
};
bool parse_expert(std::string_view name, ExpertName& out);

}  // namespace mxfp4
