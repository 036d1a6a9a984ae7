// A correctly converted layer, one that a converter misunderstood, and the devices that compute them.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/moe/check/moe_kernel.h"
#include "src/packed/packed_checkpoint.h"
#include "src/verify/verify_kernels.h"
#include "tests/support/layer_checkpoint.h"
#include "tests/support/program.h"

namespace mxfp4 {

using Bytes = std::span<uint8_t>;

/// The backend that packs the layers, and the device that computes them.
struct Target {
  const char *device, *engine, *backend = "marlin", *version = "";
};
inline const Target on_cpu[] = {{"cpu", "vllm"}, {"cpu", "sglang"}, {"cpu", "vllm", "humming"}};
inline const Target on_gpu[] = {{"cuda", "vllm"},
                                {"cuda", "sglang"},
                                {"cuda", "vllm", "flashinfer-cutlass", "v1"},
                                {"cuda", "vllm", "flashinfer-cutlass", "v2"},
                                {"cuda", "vllm", "triton-hopper"},
                                {"cuda", "vllm", "humming"}};

inline std::string info(const Target& t) {
  return fmt::format("{} {} {} on {}", t.engine, t.backend, t.version, t.device);
}

/// The targets that this machine's GPU can compute, with a warning if there is no GPU.
inline std::vector<Target> gpu_targets() {
  std::vector<Target> targets;
  for (const Target& t : on_gpu) {
    const KernelFormat& format = *find_backend(t.backend, t.engine, t.version).kernel;
    const std::string missing = cuda_kernel_missing(format);
    if (missing.empty())
      targets.push_back(t);
    else
      WARN("skipped: " << info(t) << ": " << missing);
  }
  return targets;
}
/// The offset of the tensors in a safetensors file.
inline size_t data_begin(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return 8 + length;
}

/// A checkpoint of one golden layer, and another that a converter has misunderstood.
class MisreadPair {
 public:
  explicit MisreadPair(const char* file)
      : golden_(file), right_(golden_, dir_ / "right"), wrong_(golden_, dir_ / "wrong") {
    experts = std::stoll(golden_.metadata("experts"));
  }
  /// Changes every tensor of checkpoint `in` ("wrong" or "right") whose name ends with `suffix`.
  template <class Change>
  void spoil(const std::string& suffix, Change change, const std::string& in = "wrong") {
    const std::string path = dir_ / in + "/model-1.safetensors";
    std::string text = read_text(path, 1 << 28);
    Problems problems;
    int found = 0;
    for (const Tensor& t : read_header(path, in, problems).tensors) {
      if (!t.name.ends_with(suffix)) continue;
      change(Bytes(reinterpret_cast<uint8_t*>(text.data()) + t.offset, size_t(t.bytes)), t);
      ++found;
    }
    REQUIRE(found > 0);
    write_text(path, text);
  }
  /// Exchanges two names of equal length in the misunderstood checkpoint's header.
  void swap_names(const std::string& a, const std::string& b) {
    const std::string path = dir_ / "wrong/model-1.safetensors";
    std::string text = read_text(path, 1 << 28);
    for (size_t at = 8; at < data_begin(text); ++at) {
      if (text.compare(at, a.size(), a) == 0)
        text.replace(at, a.size(), b);
      else if (text.compare(at, b.size(), b) == 0)
        text.replace(at, b.size(), a);
    }
    write_text(path, text);
  }
  void pack(const Target& target, int ranks = 1) {
    ConvertOptions o = conversion(dir_ / "wrong", dir_ / "out", target.engine, target.backend);
    o.layout_version = target.version;
    o.tp_size = ranks;
    convert(o);
  }
  void pack_for(const Backend& backend) {
    ConvertOptions o = conversion(dir_ / "wrong", dir_ / "out", backend.engine, backend.name);
    o.layout_version = backend.layout_version;
    convert(o);
  }
  /// The errors that the kernels find in OUT, compared with the correct checkpoint; empty if there are none.
  std::string kernels(const Target& target = on_cpu[0]) {
    Problems problems;
    const auto packed = open_packed(dir_ / "out", problems);
    const Checkpoint source = open_checkpoint(dir_ / "right", problems);
    REQUIRE_FALSE(problems.any());
    KernelOptions options;
    options.tokens = {1, 3};
    options.device = target.device;
    const KernelReport report = verify_kernels(*packed, 0, source, options, problems);
    CHECK(report.device == target.device);
    for (const KernelCheck& c : report.checks) all_covered = all_covered || c.covered == c.experts;
    return fmt::format("{}", fmt::join(problems.errors(), "\n"));
  }
  /// The name of the device that is used if `asked` is requested.
  std::string device_of(const std::string& asked) {
    Problems problems;
    const auto packed = open_packed(dir_ / "out", problems);
    const Checkpoint source = open_checkpoint(dir_ / "right", problems);
    KernelOptions options;
    options.device = asked;
    return verify_kernels(*packed, 0, source, options, problems).device;
  }
  std::string out(const std::string& file) const { return dir_ / ("out/" + file); }
  int64_t experts = 0;
  bool all_covered = false;

 private:
  TempDir dir_;
  Golden golden_;
  LayerCheckpoint right_, wrong_;
};
inline const char* const gpt_oss = "layer_gpt_oss.safetensors";
inline const char* const deepseek = "layer_deepseek.safetensors";

}  // namespace mxfp4
