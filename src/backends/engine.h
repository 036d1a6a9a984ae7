// The engines, one row for each.
#pragma once

#include <span>
#include <string>

#include "src/backends/releases.h"
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
  const char* name;                       // also of its Python distribution
  std::span<const char* const> releases;  // whose sources were read, the oldest first
  Range known;                            // from the first of them to the last
  const Names* names;
  std::span<const Rule> (*chooser)();  // the engine's own choice is the first rule that applies
};
std::span<const Rule> vllm_rules(), sglang_rules();

namespace engine {
constexpr Engine made(const char* name, std::span<const char* const> releases, const Names* names,
                      std::span<const Rule> (*chooser)()) {
  return {name, releases, {releases.front(), releases.back()}, names, chooser};
}
inline constexpr Engine vllm = made("vllm", vllm_releases, &vllm_names, vllm_rules);
inline constexpr Engine sglang = made("sglang", sglang_releases, &sglang_names, sglang_rules);
}  // namespace engine
inline constexpr Engine engines[] = {engine::vllm, engine::sglang};

/// The engine of that name. Throws Error{usage} with a list of all engines if there is none.
const Engine& find_engine(std::string_view name);

/// `release`, or the newest known release if `release` is empty.
std::string or_newest(const std::string& release, std::string_view engine);

/// "vllm|sglang"
std::string engine_list(const char* separator);

/// The value of --engine: "vllm", "vllm==0.33.0" or "vllm==installed", which reads the package metadata of the python3
/// in VIRTUAL_ENV, else in PATH. The version is empty if none is given. A note is printed for a version newer than all
/// known ones. A version between two known ones counts as the older of the two, with a note.
struct EngineRequest {
  std::string name, version;
};
EngineRequest read_engine(const std::string& text);
/// Replaces the value of --engine by the engine's name, and sets `release` to the version.
void settle_engine(std::string& engine, std::string& release);

}  // namespace mxfp4
