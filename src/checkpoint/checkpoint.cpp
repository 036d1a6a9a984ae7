#include "src/checkpoint/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "src/base/checksum.h"
#include "src/base/folder.h"
#include "src/base/log.h"
#include "src/checkpoint/companion.h"
#include "src/checkpoint/remote_source.h"
#include "src/io/leftover.h"
#include "src/io/parts.h"
#include "src/io/sha256.h"
#include "src/io/source_folder.h"
#include "src/remote/address.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_index_bytes = int64_t(256) << 20;
constexpr int64_t max_config_bytes = int64_t(16) << 20;

int64_t ctime_of(const struct stat& s) { return int64_t(s.st_ctim.tv_sec) * 1'000'000'000 + s.st_ctim.tv_nsec; }

bool add_shard(Checkpoint& ck, const std::string& name, Problems& problems) {
  const Fd file = ck.folder->open(name, problems);
  if (!file) return false;
  ck.shards.push_back(source_shard(name, ck.folder->path(name), file));
  if (ck.remote) ck.remote->set_state(ck.shards.back());
  return true;
}

/// The names of all files that may be shards. Engines find shards by a pattern that excludes names with a dot in front.
std::vector<std::string> safetensors_in(const Folder& folder) {
  std::vector<std::string> names;
  for (const std::string& name : names_in_folder(folder))
    if (fs::path(name).extension() == ".safetensors" && !name.starts_with(".")) names.push_back(name);
  return names;
}

/// Whether another shard has the tensor as well.
bool is_twice(const std::vector<Tensor>& tensors, size_t i) {
  return (i > 0 && tensors[i - 1].name == tensors[i].name) ||
         (i + 1 < tensors.size() && tensors[i + 1].name == tensors[i].name);
}

/// Tensors of one cause, by shard.
struct InShard {
  const Tensor* first = nullptr;
  int64_t count = 0;
};
using ByShard = std::map<std::string, InShard>;

void add_to(ByShard& shards, const Checkpoint& ck, const Tensor& t) {
  InShard& s = shards[ck.shard_of(t)];
  if (s.count++ == 0) s.first = &t;
}

/// "shard: tensor", or "shard: tensor and 7 more".
std::string where_of(const Checkpoint& ck, const InShard& s) {
  return ck.where(*s.first) + (s.count > 1 ? fmt::format(" and {} more", s.count - 1) : "");
}

void check_tensors_once(const Checkpoint& ck, Problems& problems) {
  std::map<std::string, ByShard> twice;  // by the other shard
  for (size_t i = 1; i < ck.tensors.size(); ++i) {
    const Tensor &a = ck.tensors[i - 1], &b = ck.tensors[i];
    if (a.name == b.name) add_to(twice[ck.shard_of(a)], ck, b);
  }
  for (const auto& [other, shards] : twice)
    for (const auto& [shard, found] : shards)
      problems.error(where_of(ck, found), "also in {}; a tensor must be in one shard only", other);
}

void check_against_index(const Checkpoint& ck, const Index& index, const std::set<std::string>& unreadable,
                         Problems& problems) {
  for (const auto& [name, file] : index.weight_map)
    if (!unreadable.count(file) && !ck.find(name))
      problems.error(where(file, name), "in the index but not in the shard");
  int64_t total = 0;
  ByShard unnamed;
  for (size_t i = 0; i < ck.tensors.size(); ++i) {
    const Tensor& t = ck.tensors[i];
    total += t.bytes;
    const std::string* file = index.file_of(t.name);
    if (!file)
      add_to(unnamed, ck, t);
    else if (*file != ck.shard_of(t) && !is_twice(ck.tensors, i))
      problems.error(ck.where(t), "the index says {}", *file);
  }
  for (const auto& [shard, found] : unnamed)
    problems.warn(where_of(ck, found),
                  "in the shard but not in the index; kept, because engines load such tensors, too");
  if (index.total_size >= 0 && index.total_size != total && unreadable.empty())
    problems.warn(index_name, "total_size is {}, the tensors have {} bytes", index.total_size, total);
}

/// Warns of shards that the index does not name. Engines skip these, so layers may be missing, for example MTP layers
/// in a shard of their own.
void warn_of_others(const std::vector<std::string>& files, const std::set<std::string>& named, Problems& problems) {
  std::vector<std::string> others;
  for (const std::string& name : files)
    if (!named.count(name)) others.push_back(name);
  if (others.empty()) return;
  problems.warn(index_name, "does not name {}, which {} skipped: {}{}{}", counted(others.size(), "shard"),
                others.size() == 1 ? "is" : "are", others.front(),
                others.size() < 2    ? ""
                : others.size() == 2 ? ", "
                                     : " to ",
                others.size() < 2 ? "" : others.back());
}

/// Reads the headers of ck.shards into ck.tensors; returns the shards that could not be read.
std::set<std::string> read_headers(Checkpoint& ck, Problems& problems) {
  std::set<std::string> unreadable;
  for (size_t i = 0; i < ck.shards.size(); ++i) {
    const int64_t before = problems.count();
    const Shard& shard = ck.shards[i];
    const Fd file = shard.version.empty() ? open_again(shard) : open_read(shard.path, shard.name);
    Header header = read_header(file, shard.name, problems, shard.state.bytes);
    for (const auto& [key, value] : header.metadata)
      if (key == "mxfp4_pack")
        problems.error(ck.shards[i].name, "already packed by mxfp4-pack; {}",
                       ck.remote ? "download that output and give its folder, or give the original checkpoint"
                                 : "use the original checkpoint");
    if (problems.count() != before) unreadable.insert(ck.shards[i].name);
    ck.shards[i].header = {ck.shards[i].path, ck.shards[i].name, 8, int64_t(header.text.size()),
                           hash_bytes(header.text.data(), int64_t(header.text.size()))};
    header.text = {};
    for (Tensor& t : header.tensors) {
      t.file = int(i);
      ck.tensors.push_back(std::move(t));
    }
  }
  std::sort(ck.tensors.begin(), ck.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.name != b.name ? a.name < b.name : a.file < b.file; });
  return unreadable;
}

bool looks_like_checkpoint(const fs::path& folder) {
  std::error_code ec;
  if (!fs::exists(folder / config_name, ec)) return false;
  const auto names = names_in_folder(folder, Unreadable::skip);
  return std::any_of(names.begin(), names.end(), [](const fs::path& p) { return p.extension() == ".safetensors"; });
}

/// "; is DIR meant?" if a folder in `path`, or the folder above, is a checkpoint.
std::string nearby(const fs::path& path) {
  std::error_code ec;
  std::vector<fs::path> folders;
  for (const std::string& name : names_in_folder(path, Unreadable::skip))
    if (fs::is_directory(path / name, ec)) folders.push_back(path / name);
  folders.push_back((path.has_filename() ? path : path.parent_path()).parent_path());
  const auto found = std::find_if(folders.begin(), folders.end(), looks_like_checkpoint);
  return found == folders.end() ? "" : fmt::format("; is {} meant?", found->string());
}

/// Throws an error for a path that is no checkpoint. It names the format of the file, or of the files in the directory,
/// if known.
[[noreturn]] void fail_no_checkpoint(const std::string& path) {
  if (fs::is_regular_file(path)) {
    const std::string foreign = foreign_format_of(open_read(path));
    fail(ErrorKind::input, "{}: {}", path,
         foreign.empty() ? "a file; a checkpoint directory was expected" + nearby(path) : foreign);
  }
  for (const std::string& name : names_in_folder(path))
    if (const fs::path file = fs::path(path) / name; fs::is_regular_file(file) && is_weights(file))
      if (const std::string foreign = foreign_format_of(open_read(file.string())); !foreign.empty())
        fail(ErrorKind::input, "{}: {}: {}", path, name, foreign);
  fail(ErrorKind::input, "{}: no {} and no *.safetensors; a checkpoint directory was expected{}", path, index_name,
       nearby(path));
}

/// Reads a JSON file of the checkpoint. If reading fails, returns an empty text and adds a problem.
std::string read_json_text(Checkpoint& ck, const char* name, int64_t limit, Problems& problems) {
  Fd file = ck.folder->open(name, problems);
  if (!file) return {};
  ck.texts.push_back(source_shard(name, ck.folder->path(name), file));
  const std::string foreign = foreign_format_of(file);
  if (foreign.empty()) return read_text(limited(std::move(file), limit));
  return problems.error(name, "{}", foreign), std::string();
}

bool read_config(Checkpoint& ck, Problems& problems) {
  const int64_t before = problems.count();
  try {
    ck.config_text = read_json_text(ck, config_name, max_config_bytes, problems);
    if (problems.count() != before) return false;
    Json config = parse_json(ck.config_text, config_name);
    if (config.is_object())
      ck.config = std::move(config);
    else
      problems.error(config_name, "no JSON object");
  } catch (const Error& e) {
    problems.add(e);
  }
  return problems.count() == before;
}

/// Reads the given shards: those of the index, or every *.safetensors file. Returns the names of unreadable shards.
std::set<std::string> read_shards(Checkpoint& ck, const std::set<std::string>& names, Problems& problems) {
  std::set<std::string> unreadable;
  int64_t bytes = 0;
  for (const std::string& name : names) {
    const bool safe = is_safe_name(name), own = reserved(name) == Reserved::everywhere;
    if (!safe) problems.error(index_name, "unsafe file name '{}'", name);
    if (safe && own)
      problems.error(index_name, "file name '{}' is one of mxfp4-pack's own; rename the shard, here and in the index",
                     name);
    if (!safe || own || !add_shard(ck, name, problems))
      unreadable.insert(name);
    else if (__builtin_add_overflow(bytes, ck.shards.back().state.bytes, &bytes) || bytes > max_checkpoint_bytes)
      fail(ErrorKind::input, "{}: more than {} bytes in all", ck.dir, max_checkpoint_bytes);
  }
  unreadable.merge(read_headers(ck, problems));
  return unreadable;
}

}  // namespace

Shard source_shard(const std::string& name, const std::string& path, const Fd& opened) {
  const struct stat s = opened.stat();
  return {.name = name, .path = path, .state = state_of(s), .ctime_ns = ctime_of(s), .links = s.st_nlink};
}

Fd open_again(const Shard& shard) {
  if (!shard.version.empty()) fail(ErrorKind::input, "{}: is on a server; a local file was expected", shard.name);
  Fd file = open_read(shard.path, shard.name);
  const struct stat now = file.stat();
  const bool is_explained = shard.ctime_ns == 0 || shard.links != 1 || now.st_nlink != 1;
  if (state_of(now) != shard.state || (!is_explained && ctime_of(now) != shard.ctime_ns))
    fail(ErrorKind::input, "{}: changed while it was read; start again", shard.name);
  return file;
}

std::string TextInFile::read() const {
  if (path.empty()) return {};
  const Fd file = open_read(path, name);
  std::string text(size_t(bytes), '\0');
  file.read(text.data(), bytes, offset);
  if (!XXH128_isEqual(hash_bytes(text.data(), bytes), hash))
    fail(ErrorKind::io, "{}: changed while it was read; start again", name);
  return text;
}

Reserved reserved(std::string_view name) {
  static const std::set<std::string_view> names = {config_name, index_name, "mxfp4-pack.json",
                                                   sums_name,   run_file,   part_record};
  const std::string_view first = name.substr(0, name.find('/'));  // a folder of that name conflicts as well
  if (names.count(first)) return Reserved::everywhere;
  const bool in_out = first == "packed" || name.starts_with("rest-") || name.starts_with("model-rank-");
  return in_out ? Reserved::in_out : Reserved::no;
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find_first_of("\\:") != name.npos || !is_printable(name))
    return false;
  for (const auto& part : fs::path(name))
    if (part == ".." || part == "." || part.empty()) return false;
  return fs::path(name).lexically_normal().string() == name;
}

std::vector<Tensor>::const_iterator Checkpoint::first_from(std::string_view name) const {
  return std::lower_bound(tensors.begin(), tensors.end(), name,
                          [](const Tensor& t, std::string_view n) { return t.name < n; });
}

const Tensor* Checkpoint::find(std::string_view name) const {
  const auto it = first_from(name);
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

namespace {

/// Refuses a folder that has neither an index nor safetensors files, or that is a part of a checkpoint.
void check_is_checkpoint(const Checkpoint& ck, bool indexed, const std::vector<std::string>& files) {
  if (!indexed && files.empty() && ck.remote)
    fail(ErrorKind::input, "{}: no {} and no *.safetensors; a checkpoint was expected", ck.dir, index_name);
  if (!indexed && files.empty()) fail_no_checkpoint(ck.dir);
  if (ck.remote || indexed || ck.folder->folder().has(config_name)) return;
  if (const std::string around = nearby(ck.dir); !around.empty())
    fail(ErrorKind::input, "{}: no {}; a checkpoint directory was expected{}", ck.dir, config_name, around);
}

Index read_index(Checkpoint& ck, Problems& problems) {
  Index index;
  const int64_t before = problems.count();
  const std::string text = read_json_text(ck, index_name, max_index_bytes, problems);
  const auto bytes = int64_t(text.size());
  if (problems.count() == before) index = parse_index(text, problems);
  ck.index = {ck.folder->path(index_name), index_name, 0, bytes, hash_bytes(text.data(), bytes)};
  ck.complete &= problems.count() == before;
  return index;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& dir, Problems& problems, Links links, Extent extent) {
  const auto remote = is_remote(dir) ? std::make_shared<RemoteSource>(dir, extent) : nullptr;
  const auto held = std::make_shared<SourceFolder>(remote ? remote->folder() : dir, links);
  const Folder& folder = held->folder();
  if (!folder && errno == ENOTDIR) fail_no_checkpoint(dir);
  if (!folder) fail_errno(dir, "cannot open", errno);
  if (::euidaccess(folder.lasting_path().c_str(), R_OK | X_OK) != 0) fail_errno(dir, "cannot read", errno);
  Checkpoint ck;
  ck.dir = dir;
  ck.folder = held;
  ck.remote = remote;
  if (remote) ck.unread = remote->unread();
  const bool indexed = folder.has(index_name);
  const std::vector<std::string> files = safetensors_in(folder);
  check_is_checkpoint(ck, indexed, files);
  ck.complete = read_config(ck, problems);
  Index index;
  std::set<std::string> names;
  if (indexed) {
    index = read_index(ck, problems);
    for (const auto& [tensor, file] : index.weight_map) names.insert(file);
    if (ck.complete) warn_of_others(files, names, problems);
  } else {
    names.insert(files.begin(), files.end());
    if (names.size() > 1) problems.warn(dir, "no {}; all {} shards are read", index_name, names.size());
  }
  const std::set<std::string> unreadable = read_shards(ck, names, problems);
  if (indexed && ck.complete) check_against_index(ck, index, unreadable, problems);
  check_tensors_once(ck, problems);
  ck.complete &= unreadable.empty();
  find_companions(ck, problems);
  return ck;
}

}  // namespace mxfp4
