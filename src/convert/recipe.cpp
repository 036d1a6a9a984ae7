#include "src/convert/recipe.h"

#include "src/convert/convert.h"
#include "src/plan/plan.h"

namespace mxfp4 {

Recipe recipe_of(const ConvertOptions& options, const Plan& plan) {
  Recipe recipe = options;
  const bool is_file = !recipe.layout.empty();
  recipe.backend = is_file ? "" : plan.backend->name;
  recipe.engine = is_file ? "" : plan.backend->engine;
  recipe.layout_version = is_file ? "" : plan.backend->layout_version;
  recipe.layout_file = is_file ? plan.backend->layout_file : "";
  return recipe;
}

Json to_json(const Recipe& recipe) {
  Json out = Json::object();
  visit(recipe, [&](const char* name, const auto& member) { out[name] = member; });
  return out;
}

Json to_json(const ModelOptions& options) {
  Json out = Json::object();
  visit_recorded(options, [&](const char* name, const auto& member) { out[name] = member; });
  return out;
}

}  // namespace mxfp4
