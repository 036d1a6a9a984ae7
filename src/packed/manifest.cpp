#include "src/packed/manifest.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "src/io/sha256.h"
#include "src/packed/manifest_format.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_ranks = 65'536;
constexpr int64_t max_manifest_bytes = int64_t(4) << 30;

/// Access to a member of the manifest that must be there.
const Json& member(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || it == object.end()) fail(ErrorKind::input, "{}: no '{}'; damaged?", manifest_name, key);
  return *it;
}

std::string text_of(const Json& object, const char* key) {
  const Json& v = member(object, key);
  if (!v.is_string()) fail(ErrorKind::input, "{}: '{}' is no string; damaged?", manifest_name, key);
  return v.get<std::string>();
}

const Json& list_of(const Json& object, const char* key) {
  const Json& v = member(object, key);
  if (!v.is_array()) fail(ErrorKind::input, "{}: '{}' is no list; damaged?", manifest_name, key);
  return v;
}

/// A member that is used as a path below a directory.
std::string file_name_of(const Json& object, const char* key = "name") {
  std::string name = text_of(object, key);
  if (!is_safe_name(name)) fail(ErrorKind::input, "{}: unsafe file name '{}'", manifest_name, printable(name));
  return name;
}

/// A whole number from 0 to `most`.
int64_t number_in(const Json& v, const char* key, int64_t most) {
  if (!v.is_number_unsigned() || v.get<uint64_t>() > uint64_t(most))
    fail(ErrorKind::input, "{}: '{}' is no number from 0 to {}; damaged?", manifest_name, key, most);
  return v.get<int64_t>();
}

int64_t number_of(const Json& object, const char* key, int64_t most = max_checkpoint_bytes) {
  return number_in(member(object, key), key, most);
}

/// Neither tensors nor made by this tool.
bool is_companion(const ListedFile& f) {
  return !f.holds_tensors && f.name != "config.json" && f.name != "model.safetensors.index.json" &&
         !f.name.starts_with("packed/canary-");
}

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  Manifest run() {
    const Json& source = member(json_, "source");
    if (json_.contains("format")) m_.options.format = text_of(json_, "format");
    m_.options.tool_version = text_of(member(json_, "tool"), "version");
    m_.fingerprint = text_of(source, "fingerprint");
    if (source.contains("gate_up")) m_.options.gate_up = text_of(source, "gate_up");
    m_.options.allow_nan_scales = source.contains("allow_nan_scales");
    for (const Json& f : list_of(json_, "files")) {
      const bool tensors = f.contains("header_xxh3_128");
      m_.files.push_back(
          {file_name_of(f), number_of(f, "bytes"), text_of(f, tensors ? "header_xxh3_128" : "xxh3_128"), tensors});
      const ListedFile& listed = m_.files.back();
      if (!is_companion(listed)) continue;
      m_.source.companions.push_back(listed.name);
      m_.source.companion_checksums[listed.name] = listed.checksum;
    }
    read_source(source);
    check_names();
    for (const Json& t : list_of(json_, "copied")) {
      add_tensor(t);
      const std::string file = file_name_of(t, "copy");
      take_file(file, of_copied);
      if (!m_.copied.emplace(text_of(t, "name"), file).second) refuse_second(text_of(t, "name"));
    }
    for (const Json& set : list_of(json_, "sets")) read_set(set);
    if (m_.sets.empty()) fail(ErrorKind::input, "{}: 'sets' is empty; damaged?", manifest_name);
    std::sort(m_.source.tensors.begin(), m_.source.tensors.end(),
              [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
    return std::move(m_);
  }

 private:
  void read_set(const Json& json) {
    ManifestSet set;
    set.engine = text_of(json, "engine");
    set.backend = text_of(json, "backend");
    set.layout_version = text_of(json, "layout_version");
    if (json.contains("loss")) set.loss = json["loss"];
    if (json.contains("canary")) file_name_of(json, "canary");
    set.model = member(json, "model");
    check_model(set.model);
    set.tp.size = int(number_of(json, "moe_tp_size", max_ranks));
    set.tp.ranks.clear();
    for (const Json& r : list_of(json, "ranks")) {
      const auto rank = int(number_in(r, "ranks", max_ranks));
      if (!set.tp.ranks.empty() && rank <= set.tp.ranks.back())
        fail(ErrorKind::input, "{}: ranks are not in order; damaged?", manifest_name);
      set.tp.ranks.push_back(rank);
    }
    if (set.tp.ranks.empty() || set.tp.ranks.back() >= set.tp.size)
      fail(ErrorKind::input, "{}: ranks that do not fit moe_tp_size {}; damaged?", manifest_name, set.tp.size);
    for (const Json& t : list_of(json, "tensors")) {
      const std::pair key(int(number_of(t, "rank", max_ranks)), text_of(t, "name"));
      set.checksums[key] = text_of(t, "xxh3_128");
      const std::string file = file_name_of(t, "file");
      take_file(file, {int(m_.sets.size()), key.first});
      if (!set.files.emplace(key, file).second) refuse_second(key.second);
      for (const Json& s : list_of(t, "source")) add_tensor(s);
    }
    m_.sets.push_back(std::move(set));
  }

  /// The parts that verify reads have their types.
  static void check_model(const Json& model) {
    const auto number = [](const Json& object, const char* key) {
      if (!member(object, key).is_number())
        fail(ErrorKind::input, "{}: '{}' is no number; damaged?", manifest_name, key);
    };
    for (const char* key : {"alpha", "beta", "limit"}) number(member(model, "activation"), key);
    number(model, "routed_scaling_factor");
    number_of(member(model, "w13_rows"), "block");
    text_of(member(model, "w13_rows"), "first");
  }

  void read_source(const Json& source) {
    Checkpoint& ck = m_.source;
    ck.config_text = text_of(source, "config");
    ck.index_text = text_of(source, "index");
    if (!ck.config_text.empty()) ck.config = parse_json(ck.config_text, "config.json");
    for (const Json& f : list_of(source, "files")) {
      files_[file_name_of(f)] = int(ck.shards.size());
      ck.shards.push_back({file_name_of(f), {}, {number_of(f, "bytes"), 0, 0, 0}});
    }
  }

  [[noreturn]] static void refuse_second(const std::string& name) {
    fail(ErrorKind::input, "{}: {} is listed twice; damaged?", manifest_name, name);
  }

  /// A file holds copied tensors, or packed ones of one rank of one set.
  void take_file(const std::string& name, std::pair<int, int> set_and_rank) {
    if (owners_.emplace(name, set_and_rank).first->second != set_and_rank)
      fail(ErrorKind::input, "{}: the file '{}' is listed for two sets or ranks; damaged?", manifest_name, name);
  }

  /// Unpacked, shards and companions lie in one directory, beside config and index.
  void check_names() const {
    std::set<std::string_view> names = {"config.json", "model.safetensors.index.json"};
    const auto add = [&](const std::string& name) {
      if (!names.insert(name).second)
        fail(ErrorKind::input, "{}: the file '{}' is listed twice; damaged?", manifest_name, name);
    };
    for (const Shard& s : m_.source.shards) add(s.name);
    for (const std::string& name : m_.source.companions) add(name);
    names.clear();
    for (const ListedFile& f : m_.files) add(f.name);
  }

  void add_tensor(const Json& j) {
    Tensor t;
    t.name = text_of(j, "name");
    if (!parse_dtype(text_of(j, "dtype"), t.dtype))
      fail(ErrorKind::input, "{}: unknown dtype; damaged?", manifest_name);
    for (const Json& d : list_of(j, "shape")) t.shape.push_back(number_in(d, "shape", INT64_MAX));
    const auto file = files_.find(text_of(j, "file"));
    t.bytes = tensor_bytes(t.dtype, t.shape);
    if (file == files_.end() || t.bytes < 0) fail(ErrorKind::input, "{}: {}: damaged?", manifest_name, t.name);
    t.file = file->second;
    const std::string checksum = text_of(j, "xxh3_128");
    const auto [known, is_new] = tensors_.emplace(t.name, m_.source.tensors.size());
    if (!is_new) return check_same(m_.source.tensors[known->second], t, checksum);
    m_.checksums[t.name] = checksum;
    if (j.contains("zero_scale")) m_.float_zeros[t.name] = true;
    if (j.contains("offset")) t.offset = number_of(j, "offset");
    if (t.bytes > max_checkpoint_bytes || (bytes_ += t.bytes) > max_checkpoint_bytes)
      fail(ErrorKind::input, "{}: more than {} bytes in all; damaged?", manifest_name, max_checkpoint_bytes);
    m_.source.tensors.push_back(std::move(t));
  }

  /// Other ranks and sets list a tensor again.
  void check_same(const Tensor& known, const Tensor& t, const std::string& checksum) const {
    if (known.dtype != t.dtype || known.shape != t.shape || known.file != t.file || m_.checksums.at(t.name) != checksum)
      fail(ErrorKind::input, "{}: {} is listed twice, not the same; damaged?", manifest_name, t.name);
  }

  static constexpr std::pair<int, int> of_copied = {-1, -1};

  const Json& json_;
  Manifest m_;
  std::map<std::string, int> files_;
  std::map<std::string, size_t> tensors_;              // indexes of m_.source.tensors while that grows
  std::map<std::string, std::pair<int, int>> owners_;  // set and rank by file
  int64_t bytes_ = 0;
};

/// The text with its own checksum's digits set to zero must have that checksum.
void check_own_checksum(std::string text, const std::string& expected) {
  const size_t at = text.find(expected);
  if (expected.size() != 32 || at == text.npos)
    fail(ErrorKind::input, "{}: no checksum of its own; damaged?", manifest_name);
  text.replace(at, 32, no_checksum);
  if (checksum_of(text) != expected)
    fail(ErrorKind::input, "{}: does not have its own checksum; damaged or edited", manifest_name);
}

}  // namespace

std::string describe(const ManifestSet& s) {
  std::string out = s.backend + " of " + s.engine;
  if (s.tp.size > 1) out += fmt::format(" at tp {}", s.tp.size);
  if (!s.tp.complete())
    out += fmt::format(", rank{} {}", s.tp.ranks.size() > 1 ? "s" : "", fmt::join(s.tp.ranks, ", "));
  return out;
}

Checksums::Checksums(const Plan& plan) {
  for (const PackedTensor& t : plan.packed) {
    const auto& experts = plan.model->layers[size_t(t.layer)].experts;
    Packed p;
    p.slices.resize(experts.size());
    const size_t tensors = t.rank == plan.tp.ranks.front() ? sources_of(plan, t).size() : 0;
    p.float_zeros.resize(tensors);
    const bool stacked = source_index(plan, t, int64_t(experts.size()) - 1, 0).piece > 0;
    p.sources.assign(tensors, std::vector<Hash>(stacked ? experts.size() : 1));
    packed.push_back(std::move(p));
  }
  copied.resize(plan.copied.size());
  for (const CopyPiece& p : plan.copy_pieces) copied[size_t(p.copied)].emplace_back();
}

std::vector<const Tensor*> sources_of(const Plan& plan, const PackedTensor& t) {
  std::vector<const Tensor*> out;
  for (const Expert& e : plan.model->layers[size_t(t.layer)].experts)
    for (const Slice& s : pieces_of(t, e))
      if (s.piece == 0) out.push_back(s.tensor);
  return out;
}

SourceIndex source_index(const Plan& plan, const PackedTensor& t, int64_t expert, int piece) {
  const auto& experts = plan.model->layers[size_t(t.layer)].experts;
  const auto pieces = pieces_of(t, experts[size_t(expert)]);
  const Slice& s = pieces[size_t(piece)];
  if (s.piece_bytes < s.tensor->bytes) return {size_t(piece), size_t(expert)};  // stacked
  return {size_t(expert) * pieces.size() + size_t(piece), 0};
}

PieceHasher source_hasher(const Plan& plan, int target, const Pieces& pieces, Checksums& sums) {
  std::vector<HashedPiece> list;
  for (const PieceAt& p : pieces.list) {
    const SourceIndex at = source_index(plan, plan.packed[size_t(target)], p.expert, p.piece);
    list.push_back({p.slice.piece_bytes, &sums.packed[size_t(target)].sources[at.tensor][at.piece]});
  }
  return PieceHasher(std::move(list));
}

PieceHasher slice_hasher(const Plan& plan, size_t target, int64_t begin, int64_t end, Checksums& sums) {
  std::vector<HashedPiece> list;
  for (int64_t e = begin; e < end; ++e)
    list.push_back({plan.packed[target].slice_bytes, &sums.packed[target].slices[size_t(e)]});
  return PieceHasher(std::move(list));
}

PieceHasher copy_hasher(std::span<const CopyPiece> pieces, Checksums& sums) {
  std::vector<HashedPiece> list;
  for (const CopyPiece& p : pieces)
    list.push_back({p.bytes, &sums.copied[size_t(p.copied)][size_t(p.begin / copy_piece_bytes)]});
  return PieceHasher(std::move(list));
}

Manifest parse_manifest(std::string text) {
  const Json json = parse_json(text, manifest_name);
  const int64_t version = number_of(json, "format_version");
  if (version > format_version)
    fail(ErrorKind::input, "{}: format_version {}, this program knows up to {}; use a newer mxfp4-pack", manifest_name,
         version, format_version);
  check_own_checksum(std::move(text), text_of(json, "xxh3_128"));
  return Reader(json).run();
}

void check_has_manifest(const std::string& out) {
  if (std::filesystem::exists(out + "/" + manifest_name)) return;
  fail(ErrorKind::input, "{}: {}; an output of 'mxfp4-pack convert' was expected", printable(out),
       std::filesystem::exists(out) ? fmt::format("no {}", manifest_name) : "no such directory");
}

Manifest read_manifest_file(const std::string& path) {
  return parse_manifest(read_text(path, max_manifest_bytes, manifest_name));
}

Manifest read_manifest(const std::string& out) {
  check_has_manifest(out);
  return read_manifest_file(out + "/" + manifest_name);
}

std::string read_sets_text(const std::string& out) {
  return sets_text_of(read_text(out + "/" + manifest_name, max_manifest_bytes, manifest_name));
}

std::string sets_text_of(const std::string& text) {
  const size_t begin = text.find(std::string("\n") + sets_begin);  // no string holds a line break
  if (begin == text.npos || !text.ends_with(sets_end))
    fail(ErrorKind::input, "{}: not laid out as mxfp4-pack does; no set can be added", manifest_name);
  const size_t first = begin + 1 + std::strlen(sets_begin);
  return text.substr(first, text.size() - std::strlen(sets_end) - first);
}

std::vector<std::string> owned_files(const std::string& out) {
  if (!std::filesystem::exists(out + "/" + manifest_name)) return {};
  std::vector<std::string> names = {manifest_name};
  for (const ListedFile& f : read_manifest(out).files) names.push_back(f.name);
  if (std::filesystem::exists(out + "/" + sums_name)) names.push_back(sums_name);
  return names;
}

}  // namespace mxfp4
