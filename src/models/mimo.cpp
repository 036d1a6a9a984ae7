// Xiaomi MiMo-V2.6: MODULE.E.gate_proj|up_proj|down_proj.weight U8 [n, k/2], .weight_scale U8 [n, k/32]; the config
// calls itself fp8 and says store_dtype "mxfp4". Other linears are block FP8. Source: the published config and headers
// (2026); the order of nibbles is inferred.
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames mimo_names = {"gate_proj", "up_proj", "down_proj", "weight", "weight_scale"};

bool matches_mimo(const Checkpoint& ck) {
  const Json* q = quantization_config(ck.config);
  return q && mentions(*q, "store_dtype", "mxfp4");
}

void read_mimo(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  read_spelled_experts(ck, mimo_names, model, problems);
}

}  // namespace

const Family mimo = {"mimo", matches_mimo, read_mimo};

}  // namespace mxfp4
