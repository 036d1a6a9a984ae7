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
  bool link = false;  // shards without experts are kept whole, as links if possible
};

/// Calls f(name, member) for each member. The names are those of the options, with _ for -. A part's command and the
/// identity of a run follow this list.
template <class R, class F>
void visit(R& recipe, const F& f) {
  f("backend", recipe.backend);
  f("engine", recipe.engine);
  f("layout_version", recipe.layout_version);
  f("engine_version", recipe.engine_version);
  f("layout", recipe.layout);
  f("layout_file", recipe.layout_file);
  f("tp_size", recipe.tp_size);
  visit_recorded(recipe.model, f);
  f("link", recipe.link);
}

}  // namespace mxfp4
