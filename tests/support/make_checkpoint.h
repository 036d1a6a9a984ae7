// Checkpoints as values: tests make a small valid one, change one thing, and write it.
#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "tests/support/temp_dir.h"

namespace mxfp4 {

struct MadeTensor {
  Dtype dtype;
  std::vector<int64_t> shape;
  std::string data;
};

/// A tensor with bytes from `first` to `first + range - 1`, so that swapped tensors are detected.
inline MadeTensor make_tensor(Dtype dtype, std::vector<int64_t> shape, int first, int range) {
  MadeTensor t{dtype, std::move(shape), {}};
  t.data.resize(size_t(tensor_bytes(dtype, t.shape)));
  for (size_t i = 0; i < t.data.size(); ++i) t.data[i] = char(first + int(i * 167 % 251) % range);
  return t;
}
inline MadeTensor make_codes(Dtype dtype, std::vector<int64_t> shape) { return make_tensor(dtype, shape, 0, 256); }
inline MadeTensor make_scales(Dtype dtype, std::vector<int64_t> shape) { return make_tensor(dtype, shape, 100, 40); }

/// A file with these tensors in order of names.
inline std::string make_safetensors(const std::map<std::string, MadeTensor>& tensors, const Metadata& metadata) {
  std::vector<Tensor> entries;
  std::string data;
  for (const auto& [name, t] : tensors) {
    entries.push_back({name, t.dtype, t.shape, 0, int64_t(data.size()), int64_t(t.data.size())});
    data += t.data;
  }
  return write_header(entries, metadata, 8) + data;
}

/// A file with this header, byte for byte, and `data_bytes` of data.
inline std::string make_raw(const std::string& header, size_t data_bytes) {
  std::string out(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  return out + header + std::string(data_bytes, '\x11');
}

struct MadeCheckpoint {
  std::map<std::string, std::map<std::string, MadeTensor>> shards;  // file, tensor
  Metadata metadata = {{"format", "pt"}};
  Json config;
  std::map<std::string, std::string> weight_map;  // empty: made from the shards
  std::string index;                              // its text; empty: made from the map; "none": no index
  std::map<std::string, std::string> files;       // other files, or replaced contents of a shard

  /// The shard with the experts.
  std::map<std::string, MadeTensor>& tensors() { return shards["model-1.safetensors"]; }
  MadeTensor& at(const std::string& name) { return tensors().at(name); }
  void move(const std::string& name, const std::string& file) { shards[file].insert(tensors().extract(name)); }

  void write(const std::string& dir) const {
    Json map = Json::object();
    int64_t total = 0;
    std::map<std::string, std::string> all;
    for (const auto& [file, tensors] : shards) {
      all[file] = make_safetensors(tensors, metadata);
      for (const auto& [name, t] : tensors) map[name] = file, total += int64_t(t.data.size());
    }
    if (!weight_map.empty()) map = weight_map;
    all["config.json"] = config.dump(1);
    if (index != "none")
      all["model.safetensors.index.json"] =
          index.empty() ? Json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(1) : index;
    for (const auto& [name, text] : files) all[name] = text;
    for (const auto& [name, text] : all) {
      const std::filesystem::path path = std::filesystem::path(dir) / name;
      std::filesystem::create_directories(path.parent_path());
      write_text(path.string(), text);
    }
  }
};

/// A layer of two experts (hidden 64, intermediate 96), and a norm in another shard.
inline MadeCheckpoint make_gpt_oss() {
  MadeCheckpoint c;
  const std::string layer = "model.layers.0.mlp.", experts = layer + "experts.";
  auto& t = c.tensors();
  t[experts + "gate_up_proj_blocks"] = make_codes(Dtype::U8, {2, 192, 2, 16});
  t[experts + "gate_up_proj_scales"] = make_scales(Dtype::U8, {2, 192, 2});
  t[experts + "gate_up_proj_bias"] = make_tensor(Dtype::BF16, {2, 192}, 0, 128);
  t[experts + "down_proj_blocks"] = make_codes(Dtype::U8, {2, 64, 3, 16});
  t[experts + "down_proj_scales"] = make_scales(Dtype::U8, {2, 64, 3});
  t[experts + "down_proj_bias"] = make_tensor(Dtype::BF16, {2, 64}, 0, 128);
  t[layer + "router.weight"] = make_tensor(Dtype::BF16, {2, 64}, 0, 128);
  c.shards["model-2.safetensors"]["model.norm.weight"] = make_tensor(Dtype::BF16, {64}, 0, 128);
  c.config = {{"model_type", "gpt_oss"},
              {"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_local_experts", 2},
              {"num_experts_per_tok", 2},
              {"swiglu_limit", 7.0},
              {"quantization_config", {{"quant_method", "mxfp4"}}}};
  return c;
}

/// The experts of a DeepSeek-V4 layer. `layer`: its prefix, such as "layers.0.".
inline void add_deepseek_layer(MadeCheckpoint& c, const std::string& layer, int64_t experts, Dtype codes = Dtype::I8,
                               Dtype scales = Dtype::F8_E8M0) {
  auto& t = c.tensors();
  const auto add = [&](const std::string& name, int64_t n, int64_t k) {
    t[name + ".weight"] = make_codes(codes, {n, codes == Dtype::F4 ? k : k / 2});
    t[name + ".scale"] = make_scales(scales, {n, k / 32});
  };
  for (int64_t e = 0; e < experts; ++e) {
    const std::string expert = layer + "ffn.experts." + std::to_string(e) + ".";
    add(expert + "w1", 96, 64);
    add(expert + "w2", 64, 96);
    add(expert + "w3", 96, 64);
  }
  t[layer + "ffn.gate.weight"] = make_tensor(Dtype::BF16, {experts, 64}, 0, 128);
}

/// A layer of two experts, hidden 64, intermediate 96.
inline MadeCheckpoint make_deepseek(const std::string& prefix = "") {
  MadeCheckpoint c;
  add_deepseek_layer(c, prefix + "layers.0.", 2);
  c.shards["model-2.safetensors"][prefix + "norm.weight"] = make_tensor(Dtype::BF16, {64}, 0, 128);
  c.config = {{"model_type", "deepseek_v4"}, {"hidden_size", 64},
              {"moe_intermediate_size", 96}, {"n_routed_experts", 2},
              {"num_experts_per_tok", 2},    {"swiglu_limit", 10.0},
              {"expert_dtype", "fp4"},       {"quantization_config", {{"quant_method", "fp8"}}}};
  return c;
}

}  // namespace mxfp4
