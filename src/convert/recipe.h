// The options that decide OUT's bytes. All other options of convert say how to run.
#pragma once

#include <string>

#include "src/models/model.h"

namespace mxfp4 {

/// Engine and backend may still have the engine's own names or "auto", until the plan has chosen (recipe_of()).
struct Recipe {
  std::string backend, engine, layout_version;
  std::string engine_version;  // the release in `engine`, once settled; empty: the newest known
  std::string layout;          // a layout file, instead of backend and engine
  std::string layout_file;     // its JSON, if already read
  int tp_size = 1;
  ModelOptions model;
  bool allow_incomplete = false;  // converts despite missing tensors or unintended contents
  bool link = false;              // shards without experts are kept whole, as links if possible
};

/// OUT's manifest has no value of a member, because another value makes another set or lays OUT's files out otherwise.
inline constexpr struct InPlan {
} in_plan;

/// Calls f(name, member, recorded) for each member. The names are those of the options, with _ for -. recorded: gives
/// the member's value in the ManifestOptions of OUT, or is in_plan. A part's command, the identity of a run and the
/// comparison with an existing OUT follow this list.
template <class R, class F>
void visit(R& recipe, const F& f) {
  f("backend", recipe.backend, in_plan);
  f("engine", recipe.engine, in_plan);
  f("layout_version", recipe.layout_version, in_plan);
  f("engine_version", recipe.engine_version, in_plan);
  f("layout", recipe.layout, in_plan);
  f("layout_file", recipe.layout_file, in_plan);
  f("tp_size", recipe.tp_size, in_plan);
  f("gate_up", recipe.model.gate_up, [](const auto& made) { return made.model.gate_up; });
  f("allow_incomplete", recipe.allow_incomplete, [](const auto& made) { return made.allow_incomplete; });
  f("link", recipe.link, in_plan);
}

}  // namespace mxfp4
