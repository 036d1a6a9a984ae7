// Golden vectors: safetensors files in testdata/golden, made outside this project (testdata/README.md).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/checkpoint/safetensors.h"
#include "tests/support/testdata.h"

namespace mxfp4 {

class Golden {
 public:
  explicit Golden(const std::string& name) : text_(read_text(fmt::format("{}/golden/{}", testdata(), name), 1 << 26)) {
    Problems problems;
    uint64_t length;
    std::memcpy(&length, text_.data(), 8);
    header_ = parse_header(std::string_view(text_).substr(8, length), int64_t(text_.size()), name, problems);
    problems.throw_if_any();
  }
  const Tensor* find(std::string_view name) const {
    for (const Tensor& t : header_.tensors)
      if (t.name == name) return &t;
    return nullptr;
  }
  std::span<const uint8_t> bytes(const Tensor& t) const {
    return {reinterpret_cast<const uint8_t*>(text_.data()) + t.offset, size_t(t.bytes)};
  }
  std::string metadata(std::string_view key) const {
    for (const auto& [k, v] : header_.metadata)
      if (k == key) return v;
    return {};
  }
  const std::vector<Tensor>& tensors() const { return header_.tensors; }

 private:
  std::string text_;
  Header header_;
};

inline Json golden_table(const std::string& name) {
  return parse_json(read_text(fmt::format("{}/golden/{}", testdata(), name), 1 << 20), name);
}

inline const char* const golden_matrices[] = {"matrix_1x64x128.safetensors", "matrix_1x128x2880.safetensors",
                                              "matrix_1x192x640.safetensors", "matrix_1x320x384.safetensors",
                                              "matrix_2x256x256.safetensors"};

}  // namespace mxfp4
