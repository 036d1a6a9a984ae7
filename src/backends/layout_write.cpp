#include <algorithm>

#include "src/backends/layout_file.h"

namespace mxfp4 {

namespace {

Json to_json(const Mode& m) {
  if (m.is_even()) return {m.count, m.steps[0].row, m.steps[0].bit};
  Json steps = Json::array();
  for (const Step& s : m.steps) steps.push_back({s.row, s.bit});
  return steps;
}

Json to_json(LayerSize s) { return {{"hidden", s.hidden}, {"intermediate", s.intermediate}}; }

/// The view of one expert, in elements. Throws Error{usage} if experts are not its first dimension.
Json view_of(const Parameter& p, const Dims& shape) {
  const auto view = [&](int64_t experts) {
    Dims stored = shape;
    stored.insert(stored.begin(), experts);
    return p.view(stored);
  };
  View v = view(2), more = view(3);
  if (v.shape.front() != 2 || more.shape.front() != 3 || v.strides != more.strides ||
      !std::equal(v.shape.begin() + 1, v.shape.end(), more.shape.begin() + 1, more.shape.end()))
    fail(ErrorKind::usage, "{}: experts are not the first dimension of its view, which a layout file cannot describe",
         p.name);
  v.shape.erase(v.shape.begin());
  v.strides.erase(v.strides.begin());
  return {{"torch_dtype", v.torch_dtype}, {"shape", v.shape}, {"strides", v.strides}};
}

Json tensor(const Backend& b, const Model& model, Role role, Part part, LayerSize size) {
  const Parameter& p = b.parameter(role, part);
  const auto [n, k] = matrix_size(role, size);
  const Shape padded = {n, round_up(row_bytes(part, p, k), p.columns)};
  if (!fits(p.layout, padded))
    fail(ErrorKind::usage, "{} of {}: {} rows of {} bytes do not fit {}", b.name, b.engine, padded.n, padded.b,
         name_of(p.layout));
  const Shape stored = storage_of(p.layout, padded);
  const Dims shape = p.shape(n, k);
  Json t = {{"role", name_of(role)},     {"part", name_of(part)},        {"name", p.name},
            {"dtype", name_of(p.dtype)}, {"torch_dtype", p.torch_dtype}, {"shape", shape}};
  if (p.view) t["view"] = view_of(p, shape);
  const RowOrder order = p.order.value_or(b.w13_order(model));
  if (role == Role::w13) t["rows"] = {{"block", order.block}, {"first", order.up_first ? "up" : "gate"}};
  t["row_bytes"] = padded.b;
  t["pad"] = {{"row", p.pad.row.at(0)}, {"column", p.pad.column.at(0)}, {"storage", p.pad.storage.at(0)}};
  if (p.pad.corner != p.pad.row) t["pad"]["corner"] = p.pad.corner.at(0);
  t["add"] = p.add;
  t["storage"] = {{"rows", stored.n}, {"bytes", stored.b}};
  t["modes"] = Json::array();
  for (const Mode& m : modes_of(p.layout, stored)) t["modes"].push_back(to_json(m));
  return t;
}

/// The JSON text with one line for each key and for each entry of `tensors`.
std::string laid_out(const Json& json) {
  std::string out = "{\n";
  for (const auto& [key, value] : json.items()) {
    if (key != "tensors") {
      out += fmt::format("{}: {},\n", Json(key).dump(), value.dump());
      continue;
    }
    out += "\"tensors\": [\n";
    for (size_t i = 0; i < value.size(); ++i) out += value[i].dump() + (i + 1 < value.size() ? ",\n" : "\n");
    out += "]\n}\n";
  }
  return out;
}

}  // namespace

std::string write_layout(const Backend& b, const Model& model, LayerSize size) {
  if (b.rewrite) fail(ErrorKind::usage, "{} of {} changes values; a layout file can only move bits", b.name, b.engine);
  if (const std::string why = b.refuse ? b.refuse(model, size) : ""; !why.empty())
    fail(ErrorKind::usage, "{} of {} cannot serve it: {}", b.name, b.engine, why);
  const LayerSize padded = padded_size(b, size);
  Json json = {{"mxfp4_pack_layout", 1},    {"name", b.name},
               {"engine", b.engine},        {"size", to_json(size)},
               {"padded", to_json(padded)}, {"made_with", {{"mxfp4-pack", MXFP4_VERSION}}},
               {"tensors", Json::array()}};
  for (Role role : roles)
    for (Part part : {Part::codes, Part::scales, Part::bias})
      if (!b.parameter(role, part).name.empty() && (part != Part::bias || model.bias))
        json["tensors"].push_back(tensor(b, model, role, part, padded));
  return laid_out(json);
}

}  // namespace mxfp4
