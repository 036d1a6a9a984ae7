#include "src/backends/backend.h"

#include <algorithm>

#include "src/backends/registry.h"

namespace mxfp4 {

const char* name_of(Role role) { return role == Role::w13 ? "w13" : "w2"; }
const char* name_of(Part part) {
  constexpr const char* names[] = {"codes", "scales", "bias", "residual"};
  return names[size_t(part)];
}

const std::vector<const Backend*>& backends() {
  static const auto all = [] {
    std::vector<const Backend*> out;
    for (const std::vector<Backend>* family : registry)
      for (const Backend& b : *family) out.push_back(&b);
    return out;
  }();
  return all;
}

const Backend& find_backend(const std::string& name, const std::string& engine, const std::string& layout_version,
                            const Model* model) {
  std::vector<std::string_view> engines, versions;
  const auto add_once = [](std::vector<std::string_view>& words, std::string_view word) {
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  };
  bool found = false;
  for (const Backend* b : backends()) {
    if (name != b->name) continue;
    add_once(engines, b->engine);
    if (engine != b->engine) continue;
    add_once(versions, b->layout_version);
    if (!layout_version.empty() && layout_version != b->layout_version) continue;
    found = true;
    if (!model || !b->takes || b->takes(*model)) return *b;
  }
  if (found) fail(ErrorKind::input, "backend {} of {} is not for models of family {}", name, engine, model->family);
  if (engines.empty()) fail(ErrorKind::usage, "no backend '{}'; 'mxfp4-pack backends' lists them", name);
  if (versions.empty())
    fail(ErrorKind::usage, "backend {} is not there for engine '{}', but for {}", name, engine,
         fmt::join(engines, ", "));
  fail(ErrorKind::usage, "backend {} of {} has no layout version '{}', but {}", name, engine, layout_version,
       fmt::join(versions, ", "));
}

LayerSize padded_size(const Backend& b, LayerSize size) {
  return {round_up(size.hidden, b.multiple.hidden), round_up(size.intermediate, b.multiple.intermediate)};
}

RowOrder loaded_order(const Model& model) { return {model.pairs ? 1 : 0, false}; }

}  // namespace mxfp4
