// What a checkpoint's names mean: per MoE layer, the gate, up and down matrix of every expert.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

/// Columns that share a scale.
inline constexpr int64_t group = 32;

/// One expert's rows inside a tensor. The expert's piece is the tensor's bytes [piece, piece + piece_bytes): all of a
/// tensor that holds one expert, an equal share of a stacked one; row r lies at offset + r * stride within the piece.
/// No tensor: there are no such rows.
struct Slice {
  const Tensor* tensor = nullptr;
  int64_t piece = 0, piece_bytes = 0;
  int64_t offset = 0, stride = 0;
};

/// One projection of one expert: codes [n, k/2] bytes, scales [n, k/32], bias [n].
struct Projection {
  Slice codes, scales, bias;
};

struct Expert {
  Projection gate, up, down;  // gate, up: n = intermediate, k = hidden; down: n = hidden, k = intermediate
};

/// Main layers and multi-token-prediction blocks are numbered apart.
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

/// Heads of the attention that a config names; 0: it names none.
struct Attention {
  int64_t heads = 0, key_value_heads = 0;
};

struct Model {
  std::string family;      // "gpt-oss"
  std::string model_type;  // as the config says
  std::vector<MoeLayer> layers;
  std::vector<const Tensor*> rest;  // every other tensor, copied unchanged; by shard, then offset
  std::vector<std::string> notes;   // what was seen and left alone
  bool pairs = false;               // engines load w13 as gate, up, gate, up .. (GPT-OSS), not as two halves
  bool bias = false;
  Activation activation;
  Router router;
  Attention attention = {};
};

struct ModelOptions {
  std::string gate_up;  // "interleaved", "concatenated" or empty: by model_type
};

/// A checkpoint family: how to tell it by its tensors, and how to read it.
struct Family {
  const char* name;
  bool (*matches)(const Checkpoint&);
  void (*read)(const Checkpoint&, const ModelOptions&, Model&, Problems&);
};

/// Finds the family that matches and reads it; what is wrong goes to `problems`. An incomplete checkpoint is not read
/// further: absence proves nothing.
Model recognise(const Checkpoint& checkpoint, const ModelOptions& options, Problems& problems);

/// "model.layers.12.mlp.experts" -> model, 12. False where no such number stands in the name.
bool parse_layer(std::string_view module, LayerKind& kind, int64_t& index);

/// The number of rows of the layer's router, which stands beside the experts; -1 and a problem where it is missing.
int64_t router_rows(const Checkpoint& checkpoint, const MoeLayer& layer, Problems& problems);

/// Compares the layers' expert counts and sizes with what the config says: `experts`, `hidden`, `intermediate` are
/// its keys. Every layer of another size (where the config has none: than the first's) is an error; of another expert
/// count a warning, an error where all agree.
void check_config(const Checkpoint& checkpoint, const Model& model, const char* experts, const char* hidden,
                  const char* intermediate, Problems& problems);

/// K of codes whose rows, [n] or [experts, n], hold `row_elements` elements each; 0 and a problem where codes or scales
/// are no MXFP4. Scales are [rows.., k/32], dimensions of 1 apart.
int64_t check_pair(const Checkpoint& checkpoint, const Tensor& codes, std::vector<int64_t> rows, int64_t row_elements,
                   const Tensor& scales, Problems& problems);

/// U8, I8 or F4.
bool is_code_dtype(Dtype dtype);

inline constexpr int64_t max_experts = 65'536;  // of a layer

/// Whether another layer of stacked experts may come to the model, else a problem: a few bytes of a header can ask for
/// any number of them, which a file of holes then has.
bool has_room(const Model& model, const std::string& where, int64_t experts, Problems& problems);

/// Layers whose experts stand one by one, `MODULE.ID.PROJ.SUFFIX`.
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
