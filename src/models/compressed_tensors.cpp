// compressed-tensors' mxfp4-pack-quantized (Qwen3-MoE, GLM, Hy3, AFMoE, Gemma-4, LongCat, MiniMax, by llm-compressor):
//
//   MODULE.E.gate_proj|up_proj|down_proj.weight_packed U8 [n, k/2], .weight_scale U8 [n, k/32]
//
// There is no global scale. NVFP4 has the same .weight_packed, scales for 16 columns and a global scale. Source:
// compressed_tensors compressors/mxfp4/base.py, quant_scheme.py.
#include "src/models/families.h"

namespace mxfp4 {

void check_compressed_tensors(const Checkpoint& ck, const Model& model, Problems& problems) {
  if (model.layers.empty()) return;
  const Json* q = quantization_config(ck.config);
  if (!q || !mentions(*q, "format", "mxfp4-pack-quantized"))
    problems.error(config_name, "quantization_config has no format 'mxfp4-pack-quantized', but the experts are MXFP4");
}

namespace {

constexpr ExpertNames compressed_tensors_names = {"gate_proj", "up_proj", "down_proj", "weight_packed", "weight_scale"};

bool matches_compressed_tensors(const Checkpoint& ck) { return has_expert_suffix(ck, "weight_packed"); }

void read_compressed_tensors(const Checkpoint& ck, const ModelOptions&, Model& model, Problems& problems) {
  read_spelled_experts(ck, compressed_tensors_names, model, problems);
  check_compressed_tensors(ck, model, problems);
}

}  // namespace

const Family compressed_tensors = {"compressed-tensors", matches_compressed_tensors, read_compressed_tensors};

}  // namespace mxfp4
