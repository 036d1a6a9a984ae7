#include "src/synth/describe.h"

#include <algorithm>
#include <numeric>

#include "src/base/terminal.h"
#include "src/synth/expression.h"

namespace mxfp4 {

namespace {

constexpr const char* fill_names[] = {"codes", "scales", "weight", "block_scales", "norm", "bias", "expert_ids"};

Json load_description(std::string_view model) {
  for (const SynthModel& m : synth_models()) {
    if (m.name != model) continue;
    Json description = parse_json(m.description, m.name);
    if (!description.contains("base")) return description;
    Json base = load_description(description["base"].get<std::string>());
    base.merge_patch(description);
    return base;
  }
  std::vector<std::string> names;
  for (const SynthModel& m : synth_models()) names.emplace_back(m.name);
  fail(ErrorKind::usage, "unknown model '{}', expected one of {}{}", model, fmt::join(names, ", "),
       did_you_mean(std::string(model), names));
}

constexpr int64_t max_size = 1 << 24;  // of each dimension that an option sets

void set_size(Json& dims, const char* name, const char* option, std::optional<int64_t> size, int64_t multiple) {
  if (!size) return;
  if (*size <= 0 || *size > max_size || *size % multiple != 0)
    fail(ErrorKind::usage, "{} {}: a multiple of {} from {} to {} expected", option, *size, multiple, multiple,
         max_size);
  dims[name] = *size;
}

void set_sizes(Json& description, const SynthSizes& sizes) {
  if (sizes.tiny) description.merge_patch(Json(description["tiny"]));
  Json& dims = description["dims"];
  set_size(dims, "L", "--layers", sizes.layers, 1);
  set_size(dims, "E", "--experts", sizes.experts, 1);
  set_size(dims, "H", "--hidden", sizes.hidden, 32);
  set_size(dims, "I", "--intermediate", sizes.intermediate, 32);
  set_size(dims, "V", "--vocab", sizes.vocab, 1);
}

int64_t number(const Json& value, const Scope& scope) {
  return value.is_string() ? evaluate(value.get_ref<const std::string&>(), scope) : value.get<int64_t>();
}

/// `text` with {name} replaced.
std::string substitute(std::string text, std::string_view name, int64_t value) {
  const std::string token = fmt::format("{{{}}}", name);
  for (size_t at = 0; (at = text.find(token, at)) != std::string::npos;)
    text.replace(at, token.size(), std::to_string(value));
  return text;
}

Json expand_list(const Json& runs, const Scope& scope) {
  Json list = Json::array();
  for (const Json& run : runs) {
    const int64_t count = number(run[0], scope);
    for (int64_t i = 0; i < count; ++i) {
      const Json& item = run[1][size_t(i) % run[1].size()];
      list.push_back(item.is_string() ? Json(substitute(item, "", int64_t(list.size()))) : item);
    }
  }
  return list;
}

Json expand_config(const Json& value, const Scope& scope, const Json& lists) {
  if (value.is_structured()) {
    Json out = value;
    for (auto& [key, child] : out.items()) child = expand_config(child, scope, lists);
    return out;
  }
  if (!value.is_string() || !value.get_ref<const std::string&>().starts_with("=")) return value;
  const std::string text = value.get_ref<const std::string&>().substr(1);
  return lists.contains(text) ? lists[text] : Json(evaluate(text, scope));
}

/// Expands the groups of a description into tensors; `file` is the shard's number, 0 if the description gives none.
class Expansion {
 public:
  Expansion(const Json& description, Scope scope) : description_(description), scope_(std::move(scope)) {}

  std::vector<SynthTensor> run() {
    for (const Json& group : description_["groups"]) add_group(group);
    return std::move(tensors_);
  }

 private:
  void add_group(const Json& group) {
    std::vector<SynthTensor> templates;
    for (const Json& t : group["tensors"]) add_templates(t, group.value("prefix", ""), templates);
    std::vector<std::pair<std::string, int64_t>> loops;
    if (group.contains("for"))
      for (const auto& [name, count] : group["for"].items()) loops.emplace_back(name, number(count, scope_));
    loop(group, templates, loops, 0);
  }

  void add_templates(const Json& entry, const std::string& prefix, std::vector<SynthTensor>& templates) {
    if (entry.is_string()) {
      for (const Json& t : description_["parts"][entry.get<std::string>()]) add_templates(t, prefix, templates);
      return;
    }
    SynthTensor t;
    t.name = prefix + entry[0].get<std::string>();
    if (!parse_dtype(entry[1].get<std::string>(), t.dtype)) fail(ErrorKind::usage, "{}: unknown dtype", t.name);
    for (const Json& size : entry[2]) t.shape.push_back(number(size, scope_));
    t.bytes = tensor_bytes(t.dtype, t.shape);
    if (t.bytes < 0) fail(ErrorKind::usage, "{}: {} is too large", t.name, describe(t.dtype, t.shape));
    const auto fill = std::find(std::begin(fill_names), std::end(fill_names), entry[3].get<std::string>());
    if (fill == std::end(fill_names)) fail(ErrorKind::usage, "{}: unknown fill", t.name);
    t.fill = Fill(fill - std::begin(fill_names));
    templates.push_back(std::move(t));
  }

  /// Runs through the variables from `depth` on, the last one innermost. The names of templates still hold {variables}.
  void loop(const Json& group, const std::vector<SynthTensor>& templates,
            const std::vector<std::pair<std::string, int64_t>>& loops, size_t depth) {
    if (depth == loops.size()) return add_tensors(group, templates, loops);
    const auto& [name, count] = loops[depth];
    for (int64_t i = 0; i < count; ++i) {
      scope_.numbers[name] = i;
      loop(group, templates, loops, depth + 1);
    }
    scope_.numbers.erase(name);
  }

  void add_tensors(const Json& group, const std::vector<SynthTensor>& templates,
                   const std::vector<std::pair<std::string, int64_t>>& loops) {
    if (group.contains("if") && !number(group["if"], scope_)) return;
    const int64_t shard = group.contains("shard") ? number(group["shard"], scope_) : 0;
    for (SynthTensor t : templates) {
      for (const auto& [name, count] : loops) t.name = substitute(std::move(t.name), name, scope_.numbers[name]);
      t.file = int(shard);
      const bool scales = t.fill == Fill::scales || t.fill == Fill::block_scales;
      t.weight = int64_t(tensors_.size()) - scales;
      tensors_.push_back(std::move(t));
    }
  }

  const Json& description_;
  Scope scope_;
  std::vector<SynthTensor> tensors_;
};

/// Sets `file` if the description divides shards by size: equal shares in the order of the tensors, at least two.
void assign_by_size(std::vector<SynthTensor>& tensors, int64_t total, int64_t first, int64_t shard_bytes) {
  const int64_t count = std::max<int64_t>(2, (total + shard_bytes - 1) / shard_bytes);
  const int64_t share = (total + count - 1) / count;
  int64_t begin = 0, last = -1, number = first - 1;
  for (SynthTensor& t : tensors) {
    if (begin / share != last) {
      last = begin / share;
      ++number;
    }
    t.file = int(number);
    begin += t.bytes;
  }
}

/// Sorts tensors into the order of the files, wider elements first so that all are aligned, and sets offsets.
void lay_out(std::vector<SynthTensor>& tensors) {
  std::vector<int64_t> order(tensors.size()), place(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const SynthTensor &s = tensors[size_t(a)], &t = tensors[size_t(b)];
    return s.file != t.file ? s.file < t.file : bits_of(s.dtype) > bits_of(t.dtype);
  });
  for (size_t i = 0; i < order.size(); ++i) place[size_t(order[i])] = int64_t(i);
  std::vector<SynthTensor> sorted;
  sorted.reserve(tensors.size());
  for (int64_t i : order) {
    SynthTensor& t = sorted.emplace_back(std::move(tensors[size_t(i)]));
    t.weight = place[size_t(t.weight)];
    if (sorted.size() > 1) {
      const SynthTensor& before = sorted[sorted.size() - 2];
      if (before.file == t.file) t.offset = before.offset + before.bytes;
    }
  }
  tensors = std::move(sorted);
}

void name_shards(SynthCheckpoint& checkpoint, const Json& shards) {
  const int first = shards["first"].get<int>(), last = checkpoint.tensors.back().file;
  for (int number = first; number <= last; ++number)
    checkpoint.shards.push_back(fmt::format(fmt::runtime(shards["name"].get<std::string>()), number, last));
  for (SynthTensor& t : checkpoint.tensors) t.file -= first;
}

}  // namespace

SynthCheckpoint describe_checkpoint(std::string_view model, const SynthSizes& sizes) {
  Json description = load_description(model);
  set_sizes(description, sizes);
  Scope scope;
  for (const auto& [name, size] : description["dims"].items()) scope.numbers[name] = number(size, scope);
  Json lists = Json::object();
  for (const auto& [name, runs] : description["lists"].items()) {
    lists[name] = expand_list(runs, scope);
    if (!lists[name].empty() && lists[name][0].is_number()) scope.lists[name] = lists[name].get<std::vector<int64_t>>();
  }
  SynthCheckpoint checkpoint;
  checkpoint.experts = scope.numbers["E"];
  checkpoint.config = expand_config(description["config"], scope, lists);
  checkpoint.tensors = Expansion(description, scope).run();
  for (const SynthTensor& t : checkpoint.tensors)
    if (__builtin_add_overflow(checkpoint.bytes, t.bytes, &checkpoint.bytes))
      fail(ErrorKind::usage, "{} at these sizes is too large", model);
  const Json& shards = description["shards"];
  if (shards.contains("bytes"))
    assign_by_size(checkpoint.tensors, checkpoint.bytes, shards["first"].get<int64_t>(),
                   shards["bytes"].get<int64_t>());
  lay_out(checkpoint.tensors);
  name_shards(checkpoint, shards);
  return checkpoint;
}

}  // namespace mxfp4
