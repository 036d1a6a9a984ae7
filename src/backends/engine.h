// The engines: one row each.
#pragma once

#include <span>
#include <string>

#include "src/backends/version.h"

namespace mxfp4 {

/// An engine's names of a layer's parameters: [w13, w2].
struct Names {
  const char *codes[2], *scales[2], *bias[2];
};
inline constexpr Names vllm_names = {
    {"w13_weight", "w2_weight"}, {"w13_weight_scale", "w2_weight_scale"}, {"w13_bias", "w2_bias"}};
inline constexpr Names sglang_names = {
    {"w13_weight", "w2_weight"}, {"w13_weight_scale", "w2_weight_scale"}, {"w13_weight_bias", "w2_weight_bias"}};

struct Rule;  // select.h

struct Engine {
  const char* name;  // also of its Python distribution
  Range known;       // releases whose sources were read
  const Names* names;
  std::span<const Rule> (*chooser)();  // what it takes by itself; the first rule that applies is its choice
};
std::span<const Rule> vllm_rules(), sglang_rules(), transformers_rules();

namespace engine {
inline constexpr Engine vllm = {"vllm", {"0.26.0", "0.33.0"}, &vllm_names, vllm_rules};
inline constexpr Engine sglang = {"sglang", {"0.5.11", "0.5.23"}, &sglang_names, sglang_rules};
inline constexpr Engine transformers = {"transformers", {"4.55.0", "5.23.0"}, &vllm_names, transformers_rules};
}  // namespace engine
inline constexpr Engine engines[] = {engine::vllm, engine::sglang, engine::transformers};

/// Throws Error{usage} that lists them where there is none of that name.
const Engine& find_engine(std::string_view name);

/// Whether --engine takes it no more; what was written for it can be verified and unpacked.
bool is_withdrawn(std::string_view engine);

/// "vllm|sglang": those that convert takes.
std::string engine_list(const char* separator);

/// What --engine and --engine-version say: "vllm==0.33.0", or a name and a version. "installed": of the metadata beside
/// the python3 of VIRTUAL_ENV, else of PATH. version: empty where nothing says. One newer than those known is said.
struct EngineRequest {
  std::string name, version;
};
EngineRequest read_engine(const std::string& engine, const std::string& version);

}  // namespace mxfp4
