// A checkpoint of one layer with the tensors `in.*` of a golden layer, under its family's names.
#pragma once

#include <string>

#include "tests/support/golden.h"
#include "tests/support/make_checkpoint.h"

namespace mxfp4 {

class LayerCheckpoint {
 public:
  /// golden: layer_gpt_oss.safetensors or layer_deepseek.safetensors. Writes the checkpoint to dir.
  LayerCheckpoint(const Golden& golden, const std::string& dir) : golden_(golden) {
    const Tensor& w13 = *golden.find("in.w13");
    experts_ = w13.shape[0];
    intermediate_ = w13.shape[1] / 2;
    hidden_ = w13.shape[2] * 2;
    golden.metadata("w13_rows") == "pairs" ? add_gpt_oss() : add_deepseek();
    made_.index = "none";
    made_.write(dir);
  }
  /// The experts' module: packed tensors are named MODULE.PARAMETER.
  const std::string& module() const { return module_; }

 private:
  void add(const std::string& name, Dtype dtype, std::vector<int64_t> shape, std::span<const uint8_t> bytes) {
    made_.tensors()[name] = {dtype, std::move(shape), {bytes.begin(), bytes.end()}};
  }
  std::span<const uint8_t> in(const std::string& name) const { return golden_.bytes(*golden_.find("in." + name)); }

  void add_gpt_oss() {
    const int64_t e = experts_, h = hidden_, i = intermediate_;
    module_ = "model.layers.0.mlp.experts";
    add(module_ + ".gate_up_proj_blocks", Dtype::U8, {e, 2 * i, h / 32, 16}, in("w13"));
    add(module_ + ".gate_up_proj_scales", Dtype::U8, {e, 2 * i, h / 32}, in("w13_scale"));
    add(module_ + ".gate_up_proj_bias", Dtype::BF16, {e, 2 * i}, in("w13_bias"));
    add(module_ + ".down_proj_blocks", Dtype::U8, {e, h, i / 32, 16}, in("w2"));
    add(module_ + ".down_proj_scales", Dtype::U8, {e, h, i / 32}, in("w2_scale"));
    add(module_ + ".down_proj_bias", Dtype::BF16, {e, h}, in("w2_bias"));
    add_router("model.layers.0.mlp.router.weight");
    made_.config = {{"model_type", "gpt_oss"},
                    {"hidden_size", h},
                    {"intermediate_size", i},
                    {"num_local_experts", e},
                    {"num_experts_per_tok", 2},
                    {"swiglu_limit", 7.0},
                    {"quantization_config", {{"quant_method", "mxfp4"}}}};
  }

  void add_deepseek() {
    module_ = "layers.0.ffn.experts";
    for (int64_t e = 0; e < experts_; ++e) {
      add_projection(e, "w1", "w13", 0);
      add_projection(e, "w3", "w13", intermediate_);
      add_projection(e, "w2", "w2", 0);
    }
    add_router("layers.0.ffn.gate.weight");
    made_.config = {
        {"model_type", "deepseek_v4"},  {"hidden_size", hidden_},   {"moe_intermediate_size", intermediate_},
        {"n_routed_experts", experts_}, {"num_experts_per_tok", 2}, {"swiglu_limit", 10.0},
        {"routed_scaling_factor", 1.5}, {"expert_dtype", "fp4"},    {"quantization_config", {{"quant_method", "fp8"}}}};
  }

  /// Adds a projection from the rows of expert e in in.<from> (w13, with gate and up, or w2), from row `first` on.
  void add_projection(int64_t e, const std::string& name, const std::string& from, int64_t first) {
    const bool down = from == "w2";
    const int64_t n = down ? hidden_ : intermediate_, k = down ? intermediate_ : hidden_, rows = down ? n : 2 * n;
    const std::string expert = module_ + "." + std::to_string(e) + "." + name;
    const auto part = [&](const std::string& t, int64_t row) {
      return in(t).subspan((e * rows + first) * row, n * row);
    };
    add(expert + ".weight", Dtype::I8, {n, k / 2}, part(from, k / 2));
    add(expert + ".scale", Dtype::F8_E8M0, {n, k / 32}, part(from + "_scale", k / 32));
  }

  void add_router(const std::string& name) {
    const std::vector<uint8_t> alike(size_t(experts_ * hidden_ * 2), 0x3C);
    add(name, Dtype::BF16, {experts_, hidden_}, alike);
  }

  const Golden& golden_;
  int64_t experts_, hidden_, intermediate_;
  std::string module_;
  MadeCheckpoint made_;
};

}  // namespace mxfp4
