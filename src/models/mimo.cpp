// Xiaomi MiMo-V2.6: MODULE.E.gate_proj|up_proj|down_proj.weight U8 [n, k/2], .weight_scale U8 [n, k/32]; the config
// calls itself fp8 and says store_dtype "mxfp4". Other linears are block FP8. Source: the published config and headers
// (2026); the order of nibbles is inferred.
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames mimo_names = {"gate_proj", "up_proj", "down_proj", "weight", "weight_scale"};

bool says_mxfp4(const Json& q) { return mentions(q, "store_dtype", "mxfp4"); }

/// vLLM's quant_method fp8 reads MXFP4 experts only if store_dtype says so, but a config that does not is MiMo's, too.
bool matches_mimo(const Checkpoint& ck) {
  const Json* q = quantization_config(ck.config);
  return q &&
         (says_mxfp4(*q) || (json_string(*q, "quant_method") == "fp8" && has_expert_suffix(ck, mimo_names.scales)));
}

void check_store(const Json& q, Problems& problems) {
  if (!says_mxfp4(q))
    problems.error(config_name, "quantization_config has no store_dtype 'mxfp4', but the experts are MXFP4");
  if (const auto size = q.find("mxfp4_block_size"); size != q.end() && *size != group)
    problems.error(config_name, "quantization_config.mxfp4_block_size is {}, {} expected", size->dump(), group);
}

void read_mimo(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  if (read_spelled_experts(ck, mimo_names, model, problems)) check_store(*quantization_config(ck.config), problems);
}

}  // namespace

const Family mimo = {"mimo", matches_mimo, read_mimo};

}  // namespace mxfp4
