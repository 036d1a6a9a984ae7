// AutoRound's own format (quant_method auto-round, packing_format auto_round:llm_compressor): compressed-tensors'
// tensors,
//
//   MODULE.E.gate_proj|up_proj|down_proj.weight_packed U8 [n, k/2], .weight_scale U8 [n, k/32]
//
// under another config: data_type mx_fp, bits 4, group_size 32. extra_config gives single modules other bits. MXFP8
// ones have .weight F8_E4M3. Source: auto-round 0.16.1 export_to_autoround/export_to_nvfp_mx.py and qlinear_fp.py; vLLM
// 0.33.0 quantization/inc. SGLang 0.5.23 reads only data_type int.
#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr ExpertNames auto_round_names = {"gate_proj", "up_proj", "down_proj", "weight_packed", "weight_scale"};

bool matches_auto_round(const Checkpoint& ck) {
  const Json* q = quantization_config(ck.config);
  return q && json_string(*q, "quant_method") == "auto-round" && has_expert_suffix(ck, auto_round_names.codes);
}

/// What vLLM's INCConfig demands of MXFP4.
void check_scheme(const Json& q, Problems& problems) {
  const std::string type = json_string(q, "data_type", "int");
  const std::string packing = json_string(q, "packing_format", "auto_round:llm_compressor");
  if (type.find("mx_fp") == type.npos)
    problems.error(config_name, "quantization_config.data_type is '{}', but the experts are MXFP4 ('mx_fp' expected)",
                   type);
  if (packing != "auto_round:llm_compressor")
    problems.error(config_name, "quantization_config.packing_format is '{}', 'auto_round:llm_compressor' expected",
                   packing);
  if (const auto bits = q.find("bits"); bits != q.end() && *bits != 4)
    problems.error(config_name, "quantization_config.bits is {}, but the experts are MXFP4 (4 expected)", bits->dump());
  if (const auto size = q.find("group_size"); size != q.end() && *size != group)
    problems.error(config_name, "quantization_config.group_size is {}, {} expected", size->dump(), group);
}

void read_auto_round(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  if (read_spelled_experts(ck, auto_round_names, model, problems))
    check_scheme(*quantization_config(ck.config), problems);
}

}  // namespace

const Family auto_round = {"auto-round", matches_auto_round, read_auto_round, "compressed-tensors"};

}  // namespace mxfp4
