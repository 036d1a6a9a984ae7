// Checkpoints written tensor by tensor, and the messages about them.
#pragma once

#include <catch2/catch.hpp>

#include "src/backends/backend.h"
#include "src/models/model.h"
#include "tests/support/program.h"

namespace mxfp4 {

inline Model recognise_dir(const std::string& dir, Problems& problems, const ModelOptions& options = {}) {
  const Checkpoint ck = open_checkpoint(dir, problems);
  return recognise(ck, options, problems);
}

/// A checkpoint of one file written by hand.
class HandMade {
 public:
  HandMade(std::string dir, Json config) : dir_(std::move(dir)), config_(std::move(config)) {}
  void add(const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    const int64_t bytes = tensor_bytes(dtype, shape);
    tensors_.push_back({name, dtype, std::move(shape), 0, int64_t(data_.size()), bytes});
    for (int64_t i = 0; i < bytes; ++i) data_.push_back(char(100 + (i * 7 + int64_t(tensors_.size())) % 50));
  }
  /// Writes the checkpoint and reads it back.
  Model model(Problems& problems, const ModelOptions& options = {}) {
    write();
    return recognise_dir(dir_, problems, options);
  }
  void write() const {
    std::filesystem::create_directories(dir_);
    write_text(dir_ + "/model.safetensors", write_header(tensors_, {{"format", "pt"}}, 8) + data_);
    write_text(dir_ + "/config.json", config_.dump());
  }

 private:
  std::string dir_, data_;
  Json config_;
  std::vector<Tensor> tensors_;
};

/// How a family stores a projection: the names and dtypes of its codes and scales.
struct StoredAs {
  std::string codes, scales;
  Dtype code = Dtype::U8, scale = Dtype::U8;
};

/// Adds two experts (hidden 64, intermediate 32) with a family's names.
inline void add_experts(HandMade& ck, const std::string& module, const std::array<const char*, 3>& proj,
                        const StoredAs& as) {
  for (int e = 0; e < 2; ++e)
    for (int p = 0; p < 3; ++p) {
      const std::string stem = fmt::format("{}.{}.{}.", module, e, proj[size_t(p)]);
      const int64_t n = p == 2 ? 64 : 32, k = p == 2 ? 32 : 64;
      ck.add(stem + as.codes, as.code, {n, as.code == Dtype::U8 || as.code == Dtype::I8 ? k / 2 : k});
      ck.add(stem + as.scales, as.scale, {n, k / 32});
    }
}

inline constexpr std::array<const char*, 3> long_names = {"gate_proj", "up_proj", "down_proj"};

inline std::string first_error(const Problems& p) { return p.any() ? p.errors().front() : ""; }

/// Converts and verifies. Returns the reason of a refusal, or an empty text.
inline std::string convert_with(const Backend& b, const std::string& from, const std::string& out) {
  ConvertOptions o = conversion(from, out, b.engine, b.name);
  o.layout_version = b.layout_version;
  o.threads = 1;
  try {
    convert(o);
  } catch (const Error& e) {
    return e.lines.front();
  }
  CHECK(is_right(out, from));
  return {};
}

}  // namespace mxfp4
