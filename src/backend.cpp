#include "src/backend.h"

#include "src/backends/registry.h"

namespace mxfp4 {

const char* name_of(Role role) { return role == Role::w13 ? "w13" : "w2"; }
const char* name_of(Part part) { return part == Part::codes ? "codes" : part == Part::scales ? "scales" : "bias"; }

const std::vector<const Backend*>& backends() {
  static const std::vector<const Backend*> all(std::begin(registry), std::end(registry));
  return all;
}

const Backend& find_backend(const std::string& name, const std::string& engine, const std::string& layout_version) {
  std::string engines, versions;
  for (const Backend* b : backends()) {
    if (name != b->name) continue;
    engines += fmt::format("{}{}", engines.empty() ? "" : ", ", b->engine);
    if (engine != b->engine) continue;
    versions += fmt::format("{}{}", versions.empty() ? "" : ", ", b->layout_version);
    if (layout_version.empty() || layout_version == b->layout_version) return *b;
  }
  if (engines.empty()) fail(Kind::usage, "no backend '{}'; 'mxfp4-pack backends' lists them", name);
  if (versions.empty()) fail(Kind::usage, "backend {} is not there for engine '{}', but for {}", name, engine, engines);
  fail(Kind::usage, "backend {} of {} has no layout version '{}', but {}", name, engine, layout_version, versions);
}

LayerSize padded_size(const Backend& b, LayerSize size) {
  return {round_up(size.hidden, b.multiple.hidden), round_up(size.intermediate, b.multiple.intermediate)};
}

RowOrder loaded_order(const Model& model) { return {model.pairs ? 1 : 0, false}; }

}  // namespace mxfp4
