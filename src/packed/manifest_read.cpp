#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "src/base/new_file.h"
#include "src/checkpoint/field.h"
#include "src/io/sha256.h"
#include "src/io/source_folder.h"
#include "src/io/stage.h"
#include "src/packed/manifest.h"
#include "src/packed/manifest_format.h"

namespace mxfp4 {

namespace {

const Document document{manifest_name, "; damaged?"};

constexpr int64_t max_ranks = 65'536;
constexpr int64_t max_manifest_bytes = int64_t(256) << 20;

void read_value(const Field& f, std::string& value) { value = f.text(); }
void read_value(const Field& f, bool& value) { value = f.flag(); }

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json, document) {}

  Manifest run() {
    const Field source = json_.at("source");
    m_.own_checksum = json_.at("xxh3_128").text();
    check_needs(json_);
    m_.options.tool_version = json_.at("tool").at("version").text();
    m_.fingerprint = source.at("fingerprint").text();
    visit_recorded(m_.options.model, [&](const char* name, auto& value) {
      if (source.has(name)) read_value(source.at(name), value);
    });
    json_.at("files").each([&](const Field& f) { read_file(f); });
    read_source(source);
    json_.at("sets").each([&](const Field& set) { read_set(set); });
    if (m_.sets.empty()) json_.at("sets").refuse("empty; damaged?");
    return std::move(m_);
  }

  std::vector<ListedFile> files() {
    json_.at("files").each([&](const Field& f) { read_file(f); });
    return std::move(m_.files);
  }

 private:
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
      if (is_own_name(name)) f.at("name").refuse("'{}' is not a companion's name; damaged?", name);
      take_name(listed.name, files_of_source_, f);
      m_.source.companions.push_back(listed.name);
      m_.source.companion_checksums[listed.name] = listed.checksum;
    }
    m_.files.push_back(listed);
  }

  void read_source(const Field& source) {
    Checkpoint& ck = m_.source;
    ck.config_text = source.at("config").text();
    if (!ck.config_text.empty()) ck.config = parse_json(ck.config_text, config_name);
    source.at("files").each([&](const Field& f) {
      const std::string name = f.at("name").file_name();
      refuse_own_name(name, f);
      take_name(name, files_of_source_, f);
      ck.shards.push_back({name, {}, {f.at("bytes").number(), 0, 0, 0}});
      if ((bytes_ += ck.shards.back().state.bytes) > max_checkpoint_bytes)
        f.refuse("more than {} bytes in all; damaged?", max_checkpoint_bytes);
    });
    if (source.has("published")) source.at("published").each([&](const Field& f) { read_published(f); });
    m_.options.skips_published = source.has("published") && m_.options.published.empty();
  }

  void read_published(const Field& f) {
    const bool is_git = f.has("git_sha1");
    PublishedFile file = {f.at("name").text(), f.at("bytes").number(), f.at(is_git ? "git_sha1" : "sha256").text(),
                          f.at("published_by").text()};
    PublishedList& list = m_.options.published;
    if (!is_published_hash(file.hash) || is_sha256(file) == is_git) f.refuse("'{}' is not a hash; damaged?", file.hash);
    if (!list.empty() && list.back().name >= file.name) f.at("name").refuse("not in order; damaged?");
    list.push_back(std::move(file));
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
    set.tp_size = int(f.at("moe_tp_size").number(max_ranks));
    set.table = f.at("table").file_name();
    set.facts = f.json();
    m_.sets.push_back(std::move(set));
  }

  /// Refuses a set with an unknown entry in `needs`: readers must know all entries.
  void check_needs(const Field& f) const {
    if (!f.has("needs")) return;
    f.at("needs").each([](const Field& name) {
      if (name.text() != layout_file_need) name.refuse("'{}' is unknown; use a newer mxfp4-pack", name.text());
    });
  }

  /// Checks the types of the keys that verify reads.
  static void check_model(const Field& model) {
    for (const char* key : {"alpha", "beta", "limit"}) model.at("activation").at(key).real();
    model.at("routed_scaling_factor").real();
    model.at("w13_rows").at("block").number();
    model.at("w13_rows").at("first").text();
  }

  static void refuse_own_name(const std::string& name, const Field& f) {
    if (reserved(name) == Reserved::everywhere)
      f.at("name").refuse("'{}' is not a name of a file with tensors; damaged?", name);
  }

  /// Refuses a second file with the same name in one directory.
  static void take_name(const std::string& name, std::set<std::string>& names, const Field& f) {
    if (!names.insert(name).second) f.refuse("the file '{}' is listed twice; damaged?", name);
  }

  const Field json_;
  Manifest m_;
  std::set<std::string> files_in_out_;
  /// unpack writes shards and companions into one directory, with config and index.
  std::set<std::string> files_of_source_ = {config_name, index_name};
  int64_t bytes_ = 0;
};

/// Checks the manifest's own checksum. It was computed with zeros in the place of its digits.
void check_own_checksum(std::string text, const std::string& expected) {
  const size_t at = text.find(expected);
  if (expected.size() != std::strlen(no_checksum) || at == text.npos)
    fail(ErrorKind::input, "{}: no checksum of its own; damaged?", manifest_name);
  if (checksum_of(text.replace(at, expected.size(), no_checksum)) != expected)
    fail(ErrorKind::input, "{}: does not have its own checksum; damaged or edited", manifest_name);
}

/// Parses the text, and checks its format version and its own checksum.
Json parse_and_check(const std::string& text) {
  Json parsed = parse_json(text, manifest_name);
  const Field json(parsed, document);
  const int64_t version = json.at("format_version").number();
  if (version < format_version)
    fail(ErrorKind::input, "{}: made by a pre-release (format {}); convert the checkpoint again, to another place",
         manifest_name, version);
  if (version > format_version)
    fail(ErrorKind::input, "{}: format_version {}, this program knows {}; use a newer mxfp4-pack", manifest_name,
         version, format_version);
  check_own_checksum(text, json.at("xxh3_128").text());
  return parsed;
}

std::string manifest_in(const Folder& out) {
  Problems problems;
  std::string text = SourceFolder(out.again()).text(manifest_name, max_manifest_bytes, problems);
  problems.throw_if_any();
  return text;
}

std::vector<ListedFile> listed_in(const std::string& text) { return Reader(parse_and_check(text)).files(); }

[[noreturn]] void fail_to_look(const std::string& dir) {
  fail_errno(dir, "cannot look for " + std::string(manifest_name), errno);
}

}  // namespace

Manifest parse_manifest(const std::string& text) { return Reader(parse_and_check(text)).run(); }

bool has_manifest(const std::string& dir) {
  const Folder folder = Folder::try_open(dir);
  if (!folder && errno != ENOENT && errno != ENOTDIR && errno != ELOOP) fail_to_look(dir);
  return has_manifest(folder);
}

bool has_manifest(const Folder& dir) {
  if (dir && ::faccessat(dir.fd(), ".", X_OK, AT_EACCESS) != 0) fail_to_look(dir.path());
  return dir && dir.has(manifest_name);
}

namespace {

/// Whether a run has begun the output, and not finished it.
bool is_begun(const std::string& shown) {
  std::filesystem::path path(shown);
  if (!path.has_filename()) path = path.parent_path();
  std::error_code ec;
  return std::filesystem::exists(path.parent_path() / stage_beside(path.filename()) / staged_new, ec);
}

}  // namespace

void refuse_unfinished(const std::string& shown) {
  if (is_begun(shown))
    fail(ErrorKind::input,
         "{}: not finished: a run is writing it, or was interrupted; the command of that run continues it, and "
         "mxfp4-pack clean {} --remove discards it",
         printable(shown), shell_word(shown));
}

void check_has_manifest(const Folder& out, const std::string& shown) {
  if (has_manifest(out)) return;
  const bool is_there = out || std::filesystem::exists(shown);
  if (!is_there) refuse_unfinished(shown);
  fail(ErrorKind::input, "{}: {}; an output of 'mxfp4-pack convert' was expected", printable(shown),
       is_there ? fmt::format("no {}", manifest_name) : "no such directory");
}

void check_not_in_output(const std::string& out, const Folder& above) {
  std::filesystem::path path(above.path());
  std::set<Identity> seen;  // the root is above itself
  for (Folder at = above.again(); at && seen.insert(identity_of(at.stat())).second; at = at.parent()) {
    struct stat s;  // a folder that may not be read counts as none
    if (::fstatat(at.fd(), manifest_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(s.st_mode))
      fail(ErrorKind::usage, "{}: lies inside the output {}; choose another place", out, path.string());
    path = path.parent_path();
  }
}

void check_not_in_output(const std::string& out) {
  if (const LastStep step = last_step(out); step.above) check_not_in_output(out, step.above);
}

Manifest read_manifest_file(const std::string& path) {
  return parse_manifest(read_text(path, max_manifest_bytes, manifest_name));
}

std::vector<ListedFile> read_listed_files(const Folder& out) { return listed_in(manifest_in(out)); }

}  // namespace mxfp4
