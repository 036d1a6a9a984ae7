#include "src/backends/layout_file.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>

#include "src/backends/layout_modes.h"
#include "src/base/checksum.h"
#include "src/base/file.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_size = int64_t(1) << 19;  // hidden, intermediate

/// The text of a field that becomes part of a name: letters, digits and "._-" only.
std::string word(const Field& f) {
  constexpr const char* letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const std::string text = f.json().is_string() ? f.text() : "";
  if (text.empty() || text.size() > 64 || text.find_first_not_of(letters) != text.npos || text[0] == '.' ||
      text[0] == '-')
    f.refuse("a word of letters, digits and ._- was expected, with . and - not in front");
  return text;
}

template <class T, size_t n>
T one_of(const Field& f, const T (&values)[n]) {
  std::string names;
  for (const T& v : values) {
    if (f.json().is_string() && f.text() == name_of(v)) return v;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(v));
  }
  f.refuse("{}, one of {} was expected", f.json().dump(), names);
}

constexpr Part file_parts[] = {Part::codes, Part::scales, Part::bias};

/// The data that a backend from a file points to.
struct LayoutFile {
  Backend backend;
  std::deque<ModeLayout> modes;
  std::deque<ScaleValues> values;
};

/// may_be_built_in: false for a tensor with `values`, because some code for built-in layouts does not support their
/// pads.
Layout read_layout(const Field& v, Shape storage, Shape padded, bool may_be_built_in, LayoutFile& out) {
  try {
    const ModeLayout& given = out.modes.emplace_back(storage, read_modes(v));
    if (may_be_built_in)
      if (const auto equal = find_equal(given, padded)) return *equal;
    ByModes layout;
    layout.modes = &given;
    return layout;
  } catch (const std::invalid_argument& e) {
    v.refuse("{}", e.what());
  }
}

RowOrder read_order(const Field& v) {
  const std::string first = word(v.at("first"));
  if (first != "gate" && first != "up") v.at("first").refuse("{}, gate or up was expected", first);
  return {number(v.at("block"), 0, max_size), first == "up"};
}

/// Torch's name of a dtype with as many bits as `stored`.
std::string read_torch_dtype(const Field& v, Dtype stored) {
  static const std::map<std::string, int> bits = {{"uint8", 8},          {"int8", 8},        {"bool", 8},
                                                  {"float8_e4m3fn", 8},  {"float8_e5m2", 8}, {"float8_e4m3fnuz", 8},
                                                  {"float8_e8m0fnu", 8}, {"int16", 16},      {"uint16", 16},
                                                  {"float16", 16},       {"bfloat16", 16},   {"int32", 32},
                                                  {"uint32", 32},        {"float32", 32},    {"int64", 64},
                                                  {"uint64", 64},        {"float64", 64},    {"float4_e2m1fn_x2", 8}};
  const std::string name = word(v);
  const auto found = bits.find(name);
  if (found == bits.end()) v.refuse("{} is no dtype of torch", name);
  if (found->second != bits_of(stored))
    v.refuse("{} has {} bits, {} has {}", name, found->second, name_of(stored), bits_of(stored));
  return name;
}

Dims read_dims(const Field& v) {
  Dims dims;
  each(v, 0, 8, [&](const Field& d) { dims.push_back(number(d, 1, max_side * 64)); });
  return dims;
}

/// {"width": bytes, "of_scales": 256 numbers or null}.
ScaleValues read_values(const Field& v) {
  const int64_t width = number(v.at("width"), INT64_MIN, INT64_MAX);
  if (width != 1 && width != 2 && width != 4) v.at("width").refuse("{}, 1, 2 or 4 was expected", width);
  ScaleValues::Table values;
  size_t scale = 0;
  each(v.at("of_scales"), 256, 256, [&](const Field& value) {
    if (!value.json().is_null()) values[scale] = uint32_t(number(value, 0, UINT32_MAX));
    ++scale;
  });
  try {
    return {width, values};
  } catch (const std::invalid_argument& e) {
    v.refuse("{}", e.what());
  }
}

/// Each an element of `width` bytes.
PadBytes read_pads(const Field& pad, int64_t width) {
  const auto element = [&](const char* kind) {
    return PadByte::of(uint32_t(number(pad.at(kind), 0, (int64_t(1) << 8 * width) - 1)), width);
  };
  PadBytes pads = {element("row"), element("column"), element("storage")};
  if (pad.has("corner")) pads.corner = element("corner");
  return pads;
}

std::function<View(const Dims& stored)> read_view(const Field& v, Dtype stored, int64_t bytes) {
  const View view = {read_torch_dtype(v.at("torch_dtype"), stored), read_dims(v.at("shape")),
                     read_dims(v.at("strides"))};
  if (view.shape.size() != view.strides.size()) v.refuse("as many strides as dimensions were expected");
  const int64_t elements = bytes * 8 / bits_of(stored);
  double last = 0;  // in double, which a product of the largest sizes does not leave
  for (size_t i = 0; i < view.shape.size(); ++i) last += double(view.shape[i] - 1) * double(view.strides[i]);
  if (last >= double(elements)) v.refuse("reaches beyond the {} elements of an expert", elements);
  return [view, elements](const Dims& experts_first) {
    View all = view;
    all.shape.insert(all.shape.begin(), experts_first.front());
    all.strides.insert(all.strides.begin(), elements);
    return all;
  };
}

/// The stored form of scale bytes: `add` or `values`.
void read_scales(const Field& t, Part part, Parameter& p, LayoutFile& out) {
  p.add = uint8_t(number(t.at("add"), 0, 255));
  if (p.add && part != Part::scales) t.at("add").refuse("{} for {}; only scales are added to", p.add, name_of(part));
  if (!t.has("values")) return;
  if (part != Part::scales) t.at("values").refuse("for {}; only scales have values", name_of(part));
  if (p.add) t.at("add").refuse("{} beside values, 0 was expected", p.add);
  p.values = &out.values.emplace_back(read_values(t.at("values")));
}

/// The layout of the matrix in memory.
void read_storage(const Field& t, const Matrix& matrix, Parameter& p, LayoutFile& out) {
  const Shape padded = matrix.padded;
  Shape storage;
  storage.n = number(t.at("storage").at("rows"), padded.n, max_side);
  storage.b = number(t.at("storage").at("bytes"), padded.b, max_side);
  if (storage.b % scale_bytes(p))
    t.at("storage").refuse("{} bytes are no whole values of {}", storage.b, scale_bytes(p));
  const bool repeats = t.has("repeats");
  p.layout = read_layout(t.at("modes"), storage, padded, !p.values && !repeats, out);
  if (repeats) out.modes.back().repeats = read_repeats(t.at("repeats"), matrix, storage);
  const Dims shape = read_dims(t.at("shape"));
  p.shape = [shape](int64_t, int64_t) { return shape; };
  const int64_t bytes = packed_bytes(p.layout, padded);
  if (tensor_bytes(p.dtype, shape) != bytes)
    t.at("shape").refuse("{} is not {} bytes", describe(p.dtype, shape), bytes);
  if (t.has("view")) p.view = read_view(t.at("view"), p.dtype, bytes);
}

Parameter read_tensor(const Field& t, Role role, Part part, LayerSize padded_size, LayoutFile& out) {
  Parameter p;
  p.name = word(t.at("name"));
  if (!parse_dtype(word(t.at("dtype")), p.dtype)) t.at("dtype").refuse("no dtype of safetensors");
  if (part == Part::bias && p.dtype != Dtype::BF16 && p.dtype != Dtype::F32)
    t.at("dtype").refuse("{}, BF16 or F32 was expected", name_of(p.dtype));
  p.torch_dtype = read_torch_dtype(t.at("torch_dtype"), p.dtype);
  read_scales(t, part, p, out);
  const Shape size = matrix_size(role, padded_size);
  p.columns = number(t.at("row_bytes"), row_bytes(part, p, size.b), max_side);
  if (p.columns % scale_bytes(p))
    t.at("row_bytes").refuse("{} bytes are no whole values of {}", p.columns, scale_bytes(p));
  p.pad = read_pads(t.at("pad"), scale_bytes(p));
  if (role == Role::w13)
    p.order = read_order(t.at("rows"));
  else if (t.has("rows"))
    t.at("rows").refuse("w2's are always in order; leave them out");
  if (p.order && p.order->block && size.n / 2 % p.order->block)
    t.at("rows").refuse("blocks that do not divide {} rows", size.n / 2);
  const Shape real = matrix_size(role, out.backend.only);
  Matrix matrix;
  matrix.views = role == Role::w13 ? 2 : 1;
  matrix.real = {real.n / matrix.views, row_bytes(part, p, real.b)};
  matrix.padded = {size.n, p.columns};
  matrix.order = p.order.value_or(RowOrder{});
  read_storage(t, matrix, p, out);
  return p;
}

LayerSize read_size(const Field& v) {
  return {number(v.at("hidden"), group, max_size), number(v.at("intermediate"), group, max_size)};
}

void read_tensors(const Field& list, LayerSize padded, LayoutFile& out) {
  std::set<std::string> names;
  each(list, 4, 6, [&](const Field& t) {
    const Role role = one_of(t.at("role"), roles);
    const Part part = one_of(t.at("part"), file_parts);
    Parameter& p = out.backend.parameters[size_t(role)][size_t(part)];
    if (!p.name.empty()) t.refuse("{} {} a second time", name_of(role), name_of(part));
    p = read_tensor(t, role, part, padded, out);
    if (!names.insert(p.name).second) t.at("name").refuse("'{}' a second time", p.name);
  });
  const auto missing = [&](Role role, Part part) { return out.backend.parameter(role, part).name.empty(); };
  for (Role role : roles)
    for (Part part : {Part::codes, Part::scales})
      if (missing(role, part)) list.refuse("no {} {}", name_of(role), name_of(part));
  if (missing(Role::w13, Part::bias) != missing(Role::w2, Part::bias)) list.refuse("a bias of w13 or of w2 alone");
}

std::string refusal(const Backend& b, const Model& model, LayerSize size) {
  if (size.hidden != b.only.hidden || size.intermediate != b.only.intermediate)
    return fmt::format("the layout file is for hidden {} and intermediate {} on a rank, these are {} and {}",
                       b.only.hidden, b.only.intermediate, size.hidden, size.intermediate);
  const Parameter& w2_bias = b.parameter(Role::w2, Part::bias);
  const bool bias = !w2_bias.name.empty(),
             has_ranks = !model.layers.empty() && size.intermediate < model.layers.front().intermediate;
  if (bias && has_ranks && b.multiple.hidden > size.hidden && w2_bias.pad.row != PadByte(0))
    return "pad rows of w2's bias that are not zero: ranks above the first have zeros in all rows";
  return bias == model.bias ? "" : fmt::format("the layout file is for layers {} bias", bias ? "with" : "without");
}

/// Names of libraries and their versions.
std::vector<Fit> read_versions(const Field& v) {
  std::vector<Fit> fits;
  if (!v.json().is_object() || v.json().size() > 64) v.refuse("no list of names and versions");
  for (const auto& [name, version] : v.json().items()) {
    if (!version.is_string() || version.get<std::string>().size() > 256) v.refuse("{}: no text", printable(name));
    fits.push_back({name, version.get<std::string>(), "the layout file was made with it"});
  }
  return fits;
}

std::unique_ptr<LayoutFile> read(const Json& json, const std::string& file) {
  const Document document{file};
  const Field v(json, document);
  auto out = std::make_unique<LayoutFile>();
  if (const int64_t version = number(v.at("mxfp4_pack_layout"), INT64_MIN, INT64_MAX); version != 1)
    v.at("mxfp4_pack_layout")
        .refuse("version {}, this program knows 1{}", version, version > 1 ? "; use a newer mxfp4-pack" : "");
  Backend& b = out->backend;
  b.layout_file = json.dump();
  b.name = word(v.at("name"));
  b.engine = word(v.at("engine"));
  b.layout_version = "file-" + checksum_of(b.layout_file).substr(0, 12);
  b.gpu = "";
  b.summary = "of a layout file";
  b.only = read_size(v.at("size"));
  b.multiple = read_size(v.at("padded"));
  for (const auto& [name, side] : {std::pair{"hidden", &LayerSize::hidden}, {"intermediate", &LayerSize::intermediate}})
    if (b.multiple.*side < b.only.*side || b.multiple.*side % group)
      v.at("padded").at(name).refuse("{}, a multiple of {} from {} on was expected", b.multiple.*side, group,
                                     b.only.*side);
  b.releases = no_release;
  b.tested = "";
  if (v.has("made_with")) b.libraries = read_versions(v.at("made_with"));
  read_tensors(v.at("tensors"), b.multiple, *out);
  const RowOrder order = *b.parameter(Role::w13, Part::codes).order;
  b.w13_order = [order](const Model&) { return order; };
  b.refuse = [&b](const Model& model, LayerSize size) { return refusal(b, model, size); };
  for (const bool pairs : {false, true})
    if (const Backend* same = find_same(b, pairs);
        same && !(b.kernel && b.kernel->w13)) {  // one order, whatever the model
      b.kernel = same->kernel;
      b.halves = !pairs || same->halves;
    }
  return out;
}

}  // namespace

const Backend& read_layout(const std::string& text, const std::string& file) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<LayoutFile>> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(text);
  if (found == known.end()) found = known.emplace(text, read(parse_json(text, file, 8), file)).first;
  return found->second->backend;
}

const Backend& read_layout_file(const std::string& path) {
  const Backend& backend = read_layout(read_text(path, max_layout_bytes), path);
  check_canary(backend, path);
  return backend;
}

}  // namespace mxfp4
