#include "src/backends/layout_file.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>

#include "src/base/checksum.h"
#include "src/base/file.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_size = int64_t(1) << 19;  // hidden, intermediate
constexpr int64_t max_modes = 64;

/// A value in the file and the way to it.
struct Value {
  const Json& json;
  std::string where;  // "FILE", "FILE: tensors[2].modes"
  std::string file;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::input, "{}: {}", where, fmt::format(format, std::forward<Args>(args)...));
  }
  bool has(const char* key) const { return json.is_object() && json.contains(key); }
  Value at(const char* key) const {
    if (!has(key)) refuse("no '{}'", key);
    return {json.at(key), where == file ? fmt::format("{}: {}", file, key) : fmt::format("{}.{}", where, key), file};
  }
  /// Every entry of a list of `least` to `most`.
  template <class Use>
  void each(int64_t least, int64_t most, Use use) const {
    if (!json.is_array() || int64_t(json.size()) < least || int64_t(json.size()) > most)
      refuse("no list of {} to {} entries", least, most);
    for (size_t i = 0; i < json.size(); ++i) use(Value{json[i], fmt::format("{}[{}]", where, i), file});
  }
  int64_t number(int64_t least, int64_t most) const {
    if (!json.is_number_integer()) refuse("no whole number");
    const bool large = json.is_number_unsigned() && json.get<uint64_t>() > uint64_t(INT64_MAX);
    if (large || json.get<int64_t>() < least || json.get<int64_t>() > most)
      refuse("{} is not within {} and {}", json.dump(), least, most);
    return json.get<int64_t>();
  }
  bool flag() const {
    if (!json.is_boolean()) refuse("neither true nor false");
    return json.get<bool>();
  }
  /// Letters, digits and "._-" only: it becomes a name elsewhere.
  std::string word() const {
    constexpr const char* letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const std::string text = json.is_string() ? json.get<std::string>() : "";
    if (text.empty() || text.size() > 64 || text.find_first_not_of(letters) != text.npos || text[0] == '.' ||
        text[0] == '-')
      refuse("no word of letters, digits and ._-, with . and - not in front");
    return text;
  }
  template <class T, size_t n>
  T one_of(const T (&values)[n]) const {
    std::string names;
    for (const T& v : values) {
      if (json.is_string() && json.get<std::string>() == name_of(v)) return v;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(v));
    }
    refuse("{} is none of {}", json.dump(), names);
  }
};

constexpr Part file_parts[] = {Part::codes, Part::scales, Part::bias};

/// What a backend of a file points to.
struct LayoutFile {
  Backend backend;
  std::deque<std::string> words;
  std::deque<ModeLayout> modes;
  const char* keep(std::string word) { return words.emplace_back(std::move(word)).c_str(); }
};

Shape padded_matrix(Role role, LayerSize padded) {
  return role == Role::w13 ? Shape{2 * padded.intermediate, padded.hidden} : Shape{padded.hidden, padded.intermediate};
}

int64_t row_bytes(Part part, Dtype dtype, int64_t columns) {
  return part == Part::codes ? columns / 2 : part == Part::scales ? columns / group : bits_of(dtype) / 8;
}

Step read_step(const Value& row, const Value& bit) { return {row.number(0, max_side), bit.number(0, max_side * 8)}; }

/// [count, rows, bits], or a list of [rows, bits].
Mode read_mode(const Value& v) {
  Mode mode;
  if (v.json.is_array() && v.json.size() == 3 && v.json[0].is_number()) {
    mode.count = Value{v.json[0], v.where + "[0]", v.file}.number(1, int64_t(1) << 43);
    mode.steps = {read_step({v.json[1], v.where + "[1]", v.file}, {v.json[2], v.where + "[2]", v.file})};
    return mode;
  }
  v.each(2, max_layout_bytes, [&](const Value& s) {
    if (!s.json.is_array() || s.json.size() != 2) s.refuse("no [rows, bits]");
    mode.steps.push_back(read_step({s.json[0], s.where + "[0]", s.file}, {s.json[1], s.where + "[1]", s.file}));
  });
  mode.count = int64_t(mode.steps.size());
  return mode;
}

Layout read_modes(const Value& v, Shape storage, Shape padded, LayoutFile& out) {
  Modes modes;
  v.each(1, max_modes, [&](const Value& m) { modes.push_back(read_mode(m)); });
  try {
    const ModeLayout& given = out.modes.emplace_back(storage, std::move(modes));
    if (const auto equal = find_equal(given, padded)) return *equal;
    ByModes layout;
    layout.modes = &given;
    return layout;
  } catch (const std::invalid_argument& e) {
    v.refuse("{}", e.what());
  }
}

RowOrder read_order(const Value& v) {
  const std::string first = v.at("first").word();
  if (first != "gate" && first != "up") v.at("first").refuse("neither gate nor up");
  return {v.at("block").number(0, max_size), first == "up"};
}

Dims read_dims(const Value& v) {
  Dims dims;
  v.each(0, 8, [&](const Value& d) { dims.push_back(d.number(1, max_side * 64)); });
  return dims;
}

Parameter read_tensor(const Value& t, Role role, Part part, LayerSize padded_size, LayoutFile& out) {
  Parameter p;
  p.name = out.keep(t.at("name").word());
  if (!parse_dtype(t.at("dtype").word(), p.dtype)) t.at("dtype").refuse("no dtype of safetensors");
  if (part == Part::bias && p.dtype != Dtype::BF16 && p.dtype != Dtype::F32)
    t.at("dtype").refuse("neither BF16 nor F32");
  p.torch_dtype = out.keep(t.at("torch_dtype").word());
  const Dims shape = read_dims(t.at("shape"));
  p.shape = [shape](int64_t, int64_t) { return shape; };
  const Shape size = padded_matrix(role, padded_size);
  p.columns = t.at("row_bytes").number(row_bytes(part, p.dtype, size.b), max_side);
  const Shape padded = {size.n, p.columns};
  const Value pad = t.at("pad");
  p.pad = {uint8_t(pad.at("row").number(0, 255)), uint8_t(pad.at("column").number(0, 255)),
           uint8_t(pad.at("storage").number(0, 255))};
  p.add = uint8_t(t.at("add").number(0, 255));
  if (p.add && part != Part::scales) t.at("add").refuse("{} for {}; only scales are added to", p.add, name_of(part));
  if (role == Role::w13) p.order = read_order(t.at("rows"));
  if (p.order && p.order->block && size.n / 2 % p.order->block)
    t.at("rows").refuse("blocks that do not divide {} rows", size.n / 2);
  Shape storage;
  storage.n = t.at("storage").at("rows").number(padded.n, max_side);
  storage.b = t.at("storage").at("bytes").number(padded.b, max_side);
  p.layout = read_modes(t.at("modes"), storage, padded, out);
  if (tensor_bytes(p.dtype, shape) != storage.n * storage.b)
    t.at("shape").refuse("{} is not {} bytes", describe(p.dtype, shape), storage.n * storage.b);
  if (t.has("view")) {
    const View view = {out.keep(t.at("view").at("torch_dtype").word()), read_dims(t.at("view").at("shape")),
                       read_dims(t.at("view").at("strides"))};
    if (view.shape.size() != view.strides.size()) t.at("view").refuse("as many strides as dimensions were expected");
    const int64_t elements = storage.n * storage.b * 8 / bits_of(p.dtype);
    double last = 0;  // in double, which a product of the largest sizes does not leave
    for (size_t i = 0; i < view.shape.size(); ++i) last += double(view.shape[i] - 1) * double(view.strides[i]);
    if (last >= double(elements)) t.at("view").refuse("reaches beyond the {} elements of an expert", elements);
    p.view = [view, elements](const Dims& stored) {
      View all = view;
      all.shape.insert(all.shape.begin(), stored.front());
      all.strides.insert(all.strides.begin(), elements);
      return all;
    };
  }
  return p;
}

LayerSize read_size(const Value& v) {
  return {v.at("hidden").number(group, max_size), v.at("intermediate").number(group, max_size)};
}

void read_tensors(const Value& list, LayerSize padded, LayoutFile& out) {
  std::set<std::string> names;
  list.each(4, 6, [&](const Value& t) {
    const Role role = t.at("role").one_of(roles);
    const Part part = t.at("part").one_of(file_parts);
    Parameter& p = out.backend.parameters[size_t(role)][size_t(part)];
    if (p.name) t.refuse("{} {} a second time", name_of(role), name_of(part));
    p = read_tensor(t, role, part, padded, out);
    if (!names.insert(p.name).second) t.at("name").refuse("'{}' a second time", p.name);
  });
  const auto missing = [&](Role role, Part part) { return !out.backend.parameter(role, part).name; };
  for (Role role : roles)
    for (Part part : {Part::codes, Part::scales})
      if (missing(role, part)) list.refuse("no {} {}", name_of(role), name_of(part));
  if (missing(Role::w13, Part::bias) != missing(Role::w2, Part::bias)) list.refuse("a bias of w13 or of w2 alone");
}

std::string refusal(const Backend& b, const Model& model, LayerSize size) {
  if (size.hidden != b.only.hidden || size.intermediate != b.only.intermediate)
    return fmt::format("the layout file is for hidden {} and intermediate {} on a rank, these are {} and {}",
                       b.only.hidden, b.only.intermediate, size.hidden, size.intermediate);
  const bool bias = b.parameter(Role::w13, Part::bias).name;
  return bias == model.bias ? "" : fmt::format("the layout file is for layers {} bias", bias ? "with" : "without");
}

/// Names of libraries and their versions.
std::vector<Fit> read_versions(const Value& v) {
  std::vector<Fit> fits;
  if (!v.json.is_object() || v.json.size() > 64) v.refuse("no list of names and versions");
  for (const auto& [name, version] : v.json.items()) {
    if (!version.is_string() || version.get<std::string>().size() > 256) v.refuse("{}: no text", printable(name));
    fits.push_back({name, version.get<std::string>(), "the layout file was made with it"});
  }
  return fits;
}

std::unique_ptr<LayoutFile> read(const Json& json, const std::string& file) {
  const Value v{json, file, file};
  if (v.at("mxfp4_pack_layout").number(1, INT64_MAX) != 1)
    v.at("mxfp4_pack_layout")
        .refuse("version {}, this program knows 1; use a newer mxfp4-pack", json["mxfp4_pack_layout"].dump());
  auto out = std::make_unique<LayoutFile>();
  Backend& b = out->backend;
  b.layout_file = json.dump();
  b.name = out->keep(v.at("name").word());
  b.engine = out->keep(v.at("engine").word());
  b.layout_version = out->keep("file-" + checksum_of(b.layout_file).substr(0, 12));
  b.gpu = "";
  b.summary = "of a layout file";
  b.only = read_size(v.at("size"));
  b.multiple = read_size(v.at("padded"));
  for (int64_t LayerSize::*side : {&LayerSize::hidden, &LayerSize::intermediate})
    if (b.multiple.*side < b.only.*side || b.multiple.*side % group)
      v.at("padded").refuse("{} is no padded form of {}", b.multiple.*side, b.only.*side);
  b.releases = no_release;
  b.tested = "";
  if (v.has("made_with")) b.libraries = read_versions(v.at("made_with"));
  read_tensors(v.at("tensors"), b.multiple, *out);
  const RowOrder order = *b.parameter(Role::w13, Part::codes).order;
  b.w13_order = [order](const Model&) { return order; };
  b.refuse = [&b](const Model& model, LayerSize size) { return refusal(b, model, size); };
  for (const bool pairs : {false, true})
    if (const Backend* same = find_same(b, pairs)) {
      b.kernel = same->kernel;
      b.halves = !pairs || same->halves;
    }
  return out;
}

/// The matrix of a parameter without its bytes: what is real and what are pads.
Matrix form_of(const Backend& b, const Parameter& p, Role role, Part part, LayerSize real, const Model& model) {
  const LayerSize padded = padded_size(b, real);
  const Shape from = padded_matrix(role, real), to = padded_matrix(role, padded);
  Matrix m;
  m.views = role == Role::w13 ? 2 : 1;
  m.real = {from.n / m.views, row_bytes(part, p.dtype, from.b)};
  m.padded = {to.n, round_up(row_bytes(part, p.dtype, to.b), p.columns)};
  m.order = p.order.value_or(b.w13_order(model));
  m.pad = p.pad;
  m.add = p.add;
  return m;
}

/// Whether two forms of a storage have the same source, or the same pad, at every place.
bool is_same(const Matrix& a, const Matrix& b, Shape storage) {
  if (a.real != b.real || a.add != b.add) return false;
  const auto byte = [](const Matrix& m, int64_t n, int64_t at) -> std::array<int64_t, 3> {
    if (n < m.padded.n && at < m.real.b)
      if (const RowSource from = m.source(n); from.row < m.real.n) return {1, from.view, from.row};
    return {0, m.pad_byte(n, at), 0};
  };
  for (int64_t n = 0; n < storage.n; ++n)
    for (const int64_t at : {int64_t(0), a.real.b, a.padded.b, b.padded.b})  // between these nothing changes
      if (at < storage.b && byte(a, n, at) != byte(b, n, at)) return false;
  return true;
}

bool is_same(const Backend& file, const Backend& b, Role role, Part part, const Model& model) {
  const Parameter &ours = file.parameter(role, part), &theirs = b.parameter(role, part);
  if (!ours.name || !theirs.name) return !ours.name;
  if (ours.dtype != theirs.dtype || std::holds_alternative<ByModes>(ours.layout)) return false;
  const Matrix a = form_of(file, ours, role, part, file.only, model),
               t = form_of(b, theirs, role, part, file.only, model);
  const Shape storage = storage_of(ours.layout, a.padded);
  if (!fits(theirs.layout, t.padded) || storage_of(theirs.layout, t.padded) != storage || !is_same(a, t, storage))
    return false;
  return ours.layout.index() == theirs.layout.index() ||
         modes_of(ours.layout, storage) == modes_of(theirs.layout, storage);
}

}  // namespace

const Backend* find_same(const Backend& file, bool pairs) {
  Model model;
  model.pairs = pairs;
  const auto is_it = [&](const Backend& b) {
    if (b.rewrite) return false;
    for (Role role : roles)
      for (Part part : file_parts)
        if (!is_same(file, b, role, part, model)) return false;
    return true;
  };
  for (const Backend* b : backends())
    if (is_it(*b)) return b;
  return nullptr;
}

const Backend& read_layout(const std::string& text, const std::string& file) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<LayoutFile>> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(text);
  if (found == known.end()) found = known.emplace(text, read(parse_json(text, file, 8), file)).first;
  return found->second->backend;
}

const Backend& read_layout_file(const std::string& path) {
  return read_layout(read_text(path, max_layout_bytes), path);
}

}  // namespace mxfp4
