#include "src/packed/tables.h"

#include "src/checkpoint/field.h"
#include "src/packed/checksums.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_ranks = 65'536;
constexpr size_t max_line_bytes = size_t(64) << 20;

std::string json_text(std::string_view s) { return Json(s).dump(); }

std::string source_entry(const Plan& plan, const TensorSums& sums, size_t index, const std::string& copy) {
  const Tensor& t = plan.checkpoint->tensors[index];
  return fmt::format("{{\"name\": {}, \"file\": {}, \"dtype\": \"{}\", \"shape\": {}, \"xxh3_128\": \"{}\"{}{}}}\n",
                     json_text(t.name), json_text(plan.checkpoint->shard_of(t)), name_of(t.dtype), list_text(t.shape),
                     to_hex(sums.source[index]), sums.float_zeros.count(t.name) ? ", \"zero_scale\": 0.0" : "",
                     copy.empty() ? "" : ", \"copy\": " + json_text(copy));
}

std::string packed_entry(const Plan& plan, const PackedTensor& t, const std::string& checksum) {
  const MoeLayer& layer = plan.model->layers[size_t(t.layer)];
  const Parameter& p = *t.parameter;
  std::string out = fmt::format(
      "{{\"name\": {}, \"parameter\": \"{}\", \"namespace\": \"{}\", \"layer\": {}, \"rank\": {}, \"file\": {}, "
      "\"dtype\": \"{}\", \"torch_dtype\": \"{}\", \"shape\": {}, ",
      json_text(t.name), p.name, name_of(layer.kind), layer.index, t.rank, json_text(plan.files[size_t(t.file)].name),
      name_of(p.dtype), p.torch_dtype, list_text(t.shape));
  if (p.view) {
    const View v = p.view(t.shape);
    out += fmt::format("\"view\": {{\"dtype\": \"{}\", \"shape\": {}, \"strides\": {}}}, ", v.torch_dtype,
                       list_text(v.shape), list_text(v.strides));
  }
  if (p.object)
    out += fmt::format("\"triton\": {}, ", p.object(int64_t(layer.experts.size()), plan.padded_shape(t)).dump());
  out += fmt::format(
      "\"layout\": \"{}\", \"role\": \"{}\", \"part\": \"{}\", \"experts\": {}, \"xxh3_128\": \"{}\", \"source\": [",
      name_of(p.layout), name_of(t.role), name_of(t.part), layer.experts.size(), checksum);
  const char* separator = "";
  for (const Tensor* source : sources_of(plan, t)) {
    out += separator + json_text(source->name);
    separator = ", ";
  }
  return out + "]}\n";
}

/// Passes `count` lines to `to` in blocks.
void give_lines(size_t count, const std::function<std::string(size_t i)>& line, const TextSink& to) {
  std::string block;
  for (size_t i = 0; i < count; ++i) {
    block += line(i);
    if (int64_t(block.size()) < text_block && i + 1 < count) continue;
    to(block);
    block.clear();
  }
}

[[noreturn]] void refuse_second(const Field& f, const std::string& name) {
  f.refuse("{} is listed twice; damaged?", printable(name));
}

}  // namespace

std::string set_table_name(int set) { return fmt::format("packed/tensors-{}.jsonl", set); }

const char* name_of(LayerKind kind) { return kind == LayerKind::mtp ? "mtp" : "model"; }

std::string list_text(const Dims& list) { return fmt::format("[{}]", fmt::join(list, ",")); }

TextSource source_table(const Plan& plan, const TensorSums& sums) {
  return [&plan, &sums](const TextSink& to) {
    const auto& tensors = plan.checkpoint->tensors;
    std::vector<const std::string*> copies(tensors.size());
    for (const CopiedTensor& t : plan.copied)
      copies[size_t(t.source - tensors.data())] = &plan.files[size_t(*t.file)].name;
    give_lines(
        tensors.size(), [&](size_t i) { return source_entry(plan, sums, i, copies[i] ? *copies[i] : ""); }, to);
  };
}

TextSource set_table(const Plan& plan, const TensorSums& sums) {
  return [&plan, &sums](const TextSink& to) {
    give_lines(
        plan.packed.size(), [&](size_t i) { return packed_entry(plan, plan.packed[i], sums.packed[i]); }, to);
  };
}

void take_source_line(std::string_view line, const std::string& place, Manifest& m, std::vector<bool>& listed) {
  const Document document{place, "; damaged?"};
  const Json json = parse_json(line, place);
  const Field t(json, document);
  const std::string name = t.at("name").text();
  const Tensor* const found = m.source.find(name);
  if (!found) t.refuse("{} is in no shard; damaged?", printable(name));
  const Hash checksum = t.at("xxh3_128").hash();
  const auto index = size_t(found - m.source.tensors.data());
  if (listed[index]) refuse_second(t, name);
  listed[index] = true;
  m.checksums[index] = checksum;
  if (t.has("zero_scale")) m.float_zeros.insert(name);
  if (t.has("copy")) m.copied[name] = t.at("copy").file_name();
}

void take_set_line(std::string_view line, const std::string& place, ManifestSet& set) {
  const Document document{place, "; damaged?"};
  const Json json = parse_json(line, place);
  const Field t(json, document);
  const std::pair key(int(t.at("rank").number(max_ranks)), t.at("name").text());
  set.checksums[key] = t.at("xxh3_128").text();
  if (!set.files.emplace(key, t.at("file").file_name()).second) refuse_second(t, key.second);
}

void each_line(const std::string& path, const ListedFile& listed, Problems& problems,
               const std::function<void(std::string_view line, const std::string& place)>& use) {
  const Fd fd = open_read(path, listed.name);
  int64_t number = 0;
  const auto take = [&](std::string_view line) { use(line, fmt::format("{}: line {}", listed.name, ++number)); };
  if (to_hex(hash_of(fd)) != listed.checksum)
    return problems.error(listed.name, "it does not have the checksum in {}", manifest_name);
  std::string rest;
  give_text(fd, [&](std::string_view block) {
    rest += block;
    size_t begin = 0;
    for (size_t end = rest.find('\n'); end != rest.npos; begin = end + 1, end = rest.find('\n', begin))
      take(std::string_view(rest).substr(begin, end - begin));
    rest.erase(0, begin);
    if (rest.size() > max_line_bytes) fail(ErrorKind::input, "{}: a line is too long; damaged?", listed.name);
  });
  if (!rest.empty()) take(rest);
}

}  // namespace mxfp4
