// Checkpoints written tensor by tensor, and the messages about them.
#pragma once

#include <catch2/catch.hpp>

#include "src/backends/backend.h"
#include "src/models/model.h"
#include "tests/support/make_checkpoint.h"
#include "tests/support/program.h"
#include "tests/support/said.h"

namespace mxfp4 {

inline Model recognise_dir(const std::string& dir, Problems& problems, const ModelOptions& options = {}) {
  const Checkpoint ck = open_checkpoint(dir, problems);
  return recognise(ck, options, problems);
}

/// A checkpoint of one file in a directory.
class HandMade {
 public:
  HandMade(std::string dir, Json config) : dir_(std::move(dir)) {
    made_.config = std::move(config), made_.index = "none";
  }
  void add(const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    const int first = 60 + int(made_.tensors().size());
    made_.tensors()[name] = make_tensor(dtype, std::move(shape), first, 50);
  }
  /// Writes the checkpoint and reads it back.
  Model model(Problems& problems, const ModelOptions& options = {}) {
    write();
    return recognise_dir(dir_, problems, options);
  }
  void write() const { made_.write(dir_); }

 private:
  std::string dir_;
  MadeCheckpoint made_;
};

/// Adds two experts (hidden 64, intermediate 32).
inline void add_experts(HandMade& ck, const std::string& module, const std::string& codes) {
  for (int e = 0; e < 2; ++e)
    for (const char* proj : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string stem = fmt::format("{}.{}.{}.", module, e, proj);
      const bool down = *proj == 'd';
      const int64_t n = down ? 64 : 32, k = down ? 32 : 64;
      ck.add(stem + codes, Dtype::U8, {n, k / 2});
      ck.add(stem + "weight_scale", Dtype::U8, {n, k / 32});
    }
}

inline std::string first_error(const Problems& p) { return p.any() ? p.errors().front() : ""; }

/// Converts and verifies. Returns the reason of a refusal, or an empty text.
inline std::string convert_with(const Backend& b, const std::string& from, const std::string& out) {
  ConvertOptions o = conversion(from, out, b.engine, b.name);
  o.layout_version = b.layout_version;
  o.threads = 1;
  const std::string refusal = said_by([&] { convert(o); });
  if (refusal.empty()) CHECK(is_right(out, from));
  return refusal;
}

}  // namespace mxfp4
