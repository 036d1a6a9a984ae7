#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <unordered_set>
#include <utility>

#include "src/checkpoint/field.h"
#include "src/io/sha256.h"
#include "src/io/source_folder.h"
#include "src/packed/manifest.h"
#include "src/packed/manifest_lists.h"

namespace mxfp4 {

namespace {

const Document document{manifest_name, "; damaged?"};

constexpr int64_t max_ranks = 65'536;
constexpr int64_t max_manifest_bytes = int64_t(4) << 30;

/// Numbers of tensors in a list that grows, found by name.
struct Names {
  const std::vector<Tensor>* tensors;
  std::string_view of(size_t i) const { return (*tensors)[i].name; }
  std::string_view of(std::string_view name) const { return name; }
};
struct HashName {
  using is_transparent = void;
  Names names;
  size_t operator()(const auto& t) const { return std::hash<std::string_view>()(names.of(t)); }
};
struct EqualNames {
  using is_transparent = void;
  Names names;
  bool operator()(const auto& a, const auto& b) const { return names.of(a) == names.of(b); }
};
using NumbersByName = std::unordered_set<size_t, HashName, EqualNames>;

class Reader {
 public:
  Reader(const LongText& text, const SplitManifest& split) : text_(text), split_(split), json_(split.rest, document) {}

  Manifest run() {
    const Field source = json_.at("source");
    m_.own_checksum = json_.at("xxh3_128").text();
    check_needs(json_);
    m_.options.sha256sums = json_.has("sha256sums") && json_.at("sha256sums").flag();
    if (json_.has("format")) m_.options.format = json_.at("format").text();
    m_.options.tool_version = json_.at("tool").at("version").text();
    m_.fingerprint = source.at("fingerprint").text();
    if (source.has("gate_up")) m_.options.gate_up = source.at("gate_up").text();
    m_.options.allow_nan_scales = source.has("allow_nan_scales");
    m_.options.allow_incomplete = source.has("allow_incomplete");
    json_.at("files").each([&](const Field& f) { read_file(f); });
    read_source(source);
    each(json_.at("copied"), split_.copied, [&](const Field& t) { read_copied(t); });
    json_.at("sets").each([&](const Field& set) { read_set(set); });
    if (m_.sets.empty()) json_.at("sets").refuse("empty; damaged?");
    sort_tensors();
    return std::move(m_);
  }

  std::vector<ListedFile> files() {
    json_.at("files").each([&](const Field& f) { read_file(f); });
    return std::move(m_.files);
  }

 private:
  using Entries = std::vector<TextRange>;

  /// One after the other, so that one alone is in memory.
  void each(const Field& list, const Entries& entries, const std::function<void(const Field&)>& use) const {
    if (entries.empty()) return list.each(use);
    for (size_t i = 0; i < entries.size(); ++i) {
      const Json json = parse_json(text_.read(entries[i]), manifest_name);
      use(list.entry(json, i));
    }
  }

  /// A string of JSON, piece by piece.
  std::string read_long_string(TextRange range) const {
    std::string out, rest;
    const auto take = [&](std::string_view part) {
      const Json json = parse_json(fmt::format("\"{}\"", part), manifest_name);
      out += Field(json, document).text();
    };
    const auto is_quote = [&](int64_t at) { return text_.read({at, 1}) == "\""; };
    const int64_t last = range.offset + range.bytes - 1;
    if (range.bytes < 2 || !is_quote(range.offset) || !is_quote(last)) take("\"");  // which says what is wrong
    out.reserve(size_t(range.bytes));
    text_.give({range.offset + 1, range.bytes - 2}, [&](std::string_view block) {
      const size_t end = block.rfind(',') + 1;  // no escape sequence holds a comma
      if (end > 0) take(std::exchange(rest, {}).append(block.substr(0, end)));
      rest += block.substr(end);
    });
    take(rest);
    return out;
  }

  void read_file(const Field& f) {
    const bool tensors = f.has("header_xxh3_128");
    const std::string name = f.at("name").file_name();
    const ListedFile listed = {name, f.at("bytes").number(), f.at(tensors ? "header_xxh3_128" : "xxh3_128").text(),
                               f.at("kind").text()};
    if (listed.holds_tensors() != tensors)
      f.at("kind").refuse("'{}' with {}; damaged?", listed.kind, tensors ? "header_xxh3_128" : "xxh3_128");
    take_name(listed.name, files_in_out_, f);
    if (tensors) refuse_own_name(name, f);
    if (listed.kind == file_kind::companion) {
      if (is_own_name(name)) f.at("name").refuse("'{}' is no name of a companion; damaged?", name);
      take_name(listed.name, files_of_source_, f);
      m_.source.companions.push_back(listed.name);
      m_.source.companion_checksums[listed.name] = listed.checksum;
    }
    m_.files.push_back(listed);
  }

  void read_source(const Field& source) {
    Checkpoint& ck = m_.source;
    ck.config_text = source.at("config").text();
    ck.index = keep_text(split_.index.bytes ? read_long_string(split_.index) : source.at("index").text());
    if (!ck.config_text.empty()) ck.config = parse_json(ck.config_text, config_name);
    source.at("files").each([&](const Field& f) {
      const std::string name = f.at("name").file_name();
      refuse_own_name(name, f);
      take_name(name, files_of_source_, f);
      shards_[name] = int(ck.shards.size());
      ck.shards.push_back({name, {}, {f.at("bytes").number(), 0, 0, 0}});
    });
    if (source.has("published")) source.at("published").each([&](const Field& f) { read_published(f); });
    m_.options.skips_published = source.has("published") && m_.options.published.empty();
  }

  void read_published(const Field& f) {
    const bool is_git = f.has("git_sha1");
    PublishedFile file = {f.at("name").text(), f.at("bytes").number(), f.at(is_git ? "git_sha1" : "sha256").text(),
                          f.at("published_by").text()};
    PublishedList& list = m_.options.published;
    if (!is_published_hash(file.hash) || is_sha256(file) == is_git) f.refuse("'{}' is no hash; damaged?", file.hash);
    if (!list.empty() && list.back().name >= file.name) f.at("name").refuse("not in order; damaged?");
    list.push_back(std::move(file));
  }

  void read_copied(const Field& t) {
    add_tensor(t);
    const std::string name = t.at("name").text(), file = t.at("copy").file_name();
    take_file(file, of_copied, t);
    if (!m_.copied.emplace(name, file).second) refuse_second(t, name);
  }

  void read_set(const Field& f) {
    check_needs(f);
    ManifestSet set;
    set.engine = f.at("engine").text();
    set.backend = f.at("backend").text();
    set.layout_version = f.at("layout_version").text();
    if (f.has("engine_version")) set.engine_version = f.at("engine_version").text();
    if (f.has("layout_file")) set.layout_file = f.at("layout_file").json().dump();
    if (f.has("loss")) set.loss = f.at("loss").json();
    if (f.has("canary")) f.at("canary").file_name();
    check_model(f.at("model"));
    set.model = f.at("model").json();
    read_ranks(f, set.tp);
    const size_t index = m_.sets.size();
    each(f.at("tensors"), index < split_.tensors.size() ? split_.tensors[index] : Entries(),
         [&](const Field& t) { read_packed(t, set); });
    m_.sets.push_back(std::move(set));
  }

  /// What a reader must know beyond this version to use what is described.
  void check_needs(const Field& f) const {
    if (!f.has("needs")) return;
    f.at("needs").each([](const Field& name) {
      if (name.text() != layout_file_need)
        name.refuse("'{}', which this program does not know; use a newer one", name.text());
    });
  }

  static void read_ranks(const Field& f, TensorParallel& tp) {
    tp.size = int(f.at("moe_tp_size").number(max_ranks));
    tp.ranks.clear();
    f.at("ranks").each([&](const Field& r) {
      const auto rank = int(r.number(max_ranks));
      if (!tp.ranks.empty() && rank <= tp.ranks.back()) r.refuse("ranks are not in order; damaged?");
      tp.ranks.push_back(rank);
    });
    if (tp.ranks.empty() || tp.ranks.back() >= tp.size)
      f.at("ranks").refuse("ranks that do not fit moe_tp_size {}; damaged?", tp.size);
  }

  void read_packed(const Field& t, ManifestSet& set) {
    const std::pair key(int(t.at("rank").number(max_ranks)), t.at("name").text());
    set.checksums[key] = t.at("xxh3_128").text();
    const std::string file = t.at("file").file_name();
    take_file(file, {int(m_.sets.size()), key.first}, t);
    if (!set.files.emplace(key, file).second) refuse_second(t, key.second);
    t.at("source").each([&](const Field& s) { add_tensor(s); });
  }

  /// The parts that verify reads have their types.
  static void check_model(const Field& model) {
    for (const char* key : {"alpha", "beta", "limit"}) model.at("activation").at(key).real();
    model.at("routed_scaling_factor").real();
    model.at("w13_rows").at("block").number();
    model.at("w13_rows").at("first").text();
  }

  [[noreturn]] static void refuse_second(const Field& f, const std::string& name) {
    f.refuse("{} is listed twice; damaged?", printable(name));
  }

  /// A file holds copied tensors, or packed ones of one rank of one set.
  void take_file(const std::string& name, std::pair<int, int> set_and_rank, const Field& f) {
    if (owners_.emplace(name, set_and_rank).first->second != set_and_rank)
      f.refuse("the file '{}' is listed for two sets or ranks; damaged?", name);
  }

  static void refuse_own_name(const std::string& name, const Field& f) {
    if (reserved(name) == Reserved::everywhere)
      f.at("name").refuse("'{}' is no name of a file with tensors; damaged?", name);
  }

  /// No two files of one directory have the same name.
  static void take_name(const std::string& name, std::set<std::string>& names, const Field& f) {
    if (!names.insert(name).second) f.refuse("the file '{}' is listed twice; damaged?", name);
  }

  void add_tensor(const Field& f) {
    Tensor t;
    t.name = f.at("name").text();
    if (!parse_dtype(f.at("dtype").text(), t.dtype)) f.at("dtype").refuse("unknown dtype; damaged?");
    f.at("shape").each([&](const Field& d) { t.shape.push_back(d.number(INT64_MAX)); });
    const auto file = shards_.find(f.at("file").text());
    if (file == shards_.end()) f.at("file").refuse("no file of the source; damaged?");
    t.file = file->second;
    t.bytes = tensor_bytes(t.dtype, t.shape);
    if (t.bytes < 0) f.at("shape").refuse("{} is no size of a tensor; damaged?", describe(t.dtype, t.shape));
    const Hash checksum = f.at("xxh3_128").hash();
    if (const auto known = tensors_.find(t.name); known != tensors_.end()) return check_same(f, *known, t, checksum);
    if (f.has("zero_scale")) m_.float_zeros.insert(t.name);
    if (f.has("offset")) t.offset = f.at("offset").number();
    if (t.bytes > max_checkpoint_bytes || (bytes_ += t.bytes) > max_checkpoint_bytes)
      f.refuse("more than {} bytes in all; damaged?", max_checkpoint_bytes);
    m_.source.tensors.push_back(std::move(t));
    m_.checksums.push_back(checksum);
    tensors_.insert(m_.source.tensors.size() - 1);
  }

  /// Other ranks and sets list a tensor again.
  void check_same(const Field& f, size_t index, const Tensor& t, Hash checksum) const {
    const Tensor& known = m_.source.tensors[index];
    if (known.dtype != t.dtype || known.shape != t.shape || known.file != t.file ||
        !XXH128_isEqual(m_.checksums[index], checksum))
      f.refuse("{} is listed twice, not the same; damaged?", printable(t.name));
  }

  void sort_tensors() {
    std::vector<size_t> order(m_.source.tensors.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return m_.source.tensors[a].name < m_.source.tensors[b].name; });
    std::vector<Tensor> tensors;
    std::vector<Hash> checksums;
    tensors.reserve(order.size());
    checksums.reserve(order.size());
    for (const size_t i : order) {
      tensors.push_back(std::move(m_.source.tensors[i]));
      checksums.push_back(m_.checksums[i]);
    }
    m_.source.tensors = std::move(tensors);
    m_.checksums = std::move(checksums);
  }

  static constexpr std::pair<int, int> of_copied = {-1, -1};

  const LongText& text_;
  const SplitManifest& split_;
  const Field json_;
  Manifest m_;
  std::map<std::string, int> shards_;
  NumbersByName tensors_{0, HashName{{&m_.source.tensors}}, EqualNames{{&m_.source.tensors}}};
  std::map<std::string, std::pair<int, int>> owners_;  // set and rank by file
  std::set<std::string> files_in_out_;
  /// Unpacked, shards and companions lie in one directory, beside config and index.
  std::set<std::string> files_of_source_ = {config_name, index_name};
  int64_t bytes_ = 0;
};

/// The text with its own checksum's digits set to zero must have that checksum.
void check_own_checksum(const LongText& text, const std::string& expected) {
  const int64_t digits = 32, at = text.find(expected);
  if (int64_t(expected.size()) != digits || at < 0)
    fail(ErrorKind::input, "{}: no checksum of its own; damaged?", manifest_name);
  Hasher hasher;
  const TextSink take = [&](std::string_view block) { hasher.take(block.data(), int64_t(block.size())); };
  text.give({0, at}, take);
  take(no_checksum);
  text.give({at + digits, text.bytes() - at - digits}, take);
  if (to_hex(hasher.hash()) != expected)
    fail(ErrorKind::input, "{}: does not have its own checksum; damaged or edited", manifest_name);
}

/// Of a version that is known, and with its own checksum.
SplitManifest split_and_check(const LongText& text) {
  SplitManifest split = split_manifest(text);
  const Field json(split.rest, document);
  const int64_t version = json.at("format_version").number();
  if (version < format_version)
    fail(ErrorKind::input, "{}: made by a pre-release (format {}); convert the checkpoint again, to another place",
         manifest_name, version);
  if (version > format_version)
    fail(ErrorKind::input, "{}: format_version {}, this program knows {}; use a newer mxfp4-pack", manifest_name,
         version, format_version);
  check_own_checksum(text, json.at("xxh3_128").text());
  return split;
}

Manifest parse(const LongText& text) { return Reader(text, split_and_check(text)).run(); }

LongText open_manifest(const std::string& path) { return LongText(open_text(path, max_manifest_bytes, manifest_name)); }

std::vector<ListedFile> listed_in(const LongText& text) { return Reader(text, split_and_check(text)).files(); }

LongText manifest_in(const Folder& out) {
  Problems problems;
  Fd file = SourceFolder(out.again()).open(manifest_name, problems);
  problems.throw_if_any();
  return LongText(limited(std::move(file), max_manifest_bytes));
}

}  // namespace

Manifest parse_manifest(std::string text) { return parse(LongText(std::move(text))); }

bool has_manifest(const std::string& dir) {
  struct stat s;
  if (::lstat((dir + "/" + manifest_name).c_str(), &s) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
    fail_errno(dir, "cannot look for " + std::string(manifest_name), errno);
  return false;
}

bool has_manifest(const Folder& dir) {
  if (dir && ::faccessat(dir.fd(), ".", X_OK, AT_EACCESS) != 0)
    fail_errno(dir.path(), "cannot look for " + std::string(manifest_name), errno);
  return dir && dir.has(manifest_name);
}

void check_has_manifest(const Folder& out, const std::string& shown) {
  if (has_manifest(out)) return;
  fail(ErrorKind::input, "{}: {}; an output of 'mxfp4-pack convert' was expected", printable(shown),
       out || std::filesystem::exists(shown) ? fmt::format("no {}", manifest_name) : "no such directory");
}

Manifest read_manifest_file(const std::string& path) { return parse(open_manifest(path)); }

std::vector<ListedFile> read_listed_files(const Folder& out) { return listed_in(manifest_in(out)); }

Manifest read_manifest(const Folder& out) { return parse(manifest_in(out)); }

TextSource read_sets_text(const Folder& out) {
  const auto text = std::make_shared<LongText>(manifest_in(out));
  const TextRange sets = split_manifest(*text).sets;
  if (sets.bytes == 0)
    fail(ErrorKind::input, "{}: not laid out as mxfp4-pack does; no set can be added", manifest_name);
  return [text, sets](const TextSink& to) { text->give(sets, to); };
}

}  // namespace mxfp4
