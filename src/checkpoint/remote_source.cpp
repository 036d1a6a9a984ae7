#include "src/checkpoint/remote_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/threads.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/companion.h"
#include "src/remote/address.h"
#include "src/remote/remote_reader.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_text_bytes = int64_t(256) << 20;
constexpr int64_t most_small_bytes = int64_t(256) << 10;  // of a companion that is always fetched
constexpr int64_t length_and_format = 32;                 // a header's length, or a foreign format's first bytes

/// The companions that are looked for in a folder without a list.
constexpr const char* usual_companions[] = {"generation_config.json",
                                            "tokenizer.json",
                                            "tokenizer_config.json",
                                            "tokenizer.model",
                                            "tiktoken.model",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "chat_template.jinja",
                                            "chat_template.json",
                                            "preprocessor_config.json",
                                            "processor_config.json",
                                            "video_preprocessor_config.json",
                                            "configuration.json",
                                            "README.md",
                                            "LICENSE"};

/// Creates a file with the permissions of the umask, because an output's are those of its source.
Fd create(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666), path);
  if (!file) fail_errno(path, "cannot create", errno);
  return file;
}

}  // namespace

RemoteSource::RemoteSource(const std::string& address, Extent extent)
    : address_(parse_remote(address)),
      listing_(list_remote(address_)),
      folder_(scratch_.path() + "/" + ScratchFolder::only_name) {
  if (::mkdir(folder_.c_str(), 0777) != 0) fail_errno(folder_, "cannot create", errno);
  add_files();
  fetch_config_and_index();
  fetch_others(extent);
}

RemoteSource::~RemoteSource() = default;

void RemoteSource::add_files() {
  Problems problems;
  for (RemoteFile& f : listing_.files) {
    const auto parts = fs::path(f.name);
    if (!is_safe_name(f.name))
      problems.error(address_.shown, "unsafe file name '{}'", f.name);
    else if (std::any_of(parts.begin(), parts.end(), [](const fs::path& p) { return p.native().size() > NAME_MAX; }))
      problems.error(address_.shown, "the name of a file has more than {} bytes: '{}..'", NAME_MAX,
                     f.name.substr(0, 60));
    if (std::string name = f.name; !files_.emplace(name, std::move(f)).second)
      problems.error(address_.shown, "lists {} twice", name);
  }
  listing_.files.clear();
  problems.throw_if_any();
  if (listing_.is_whole) return;
  std::vector<std::string> names = {config_name, index_name};
  names.insert(names.end(), std::begin(usual_companions), std::end(usual_companions));
  for (const std::string& name : names)
    files_.emplace(name, RemoteFile{.name = name, .url = url_in_folder(address_, name)});
}

/// False if the server has no such file, which is an error unless the file is optional.
bool RemoteSource::fetch_text(RemoteFile& file, bool is_optional) {
  const auto found = listing_.client->text(file.name, file.url, max_text_bytes);
  if (!found.absent.empty() && is_optional) return false;
  if (!found.absent.empty()) fail(ErrorKind::io, "{}: {}: {}", address_.shown, file.name, found.absent);
  if (file.bytes >= 0 && file.bytes != int64_t(found.text.size()))
    fail(ErrorKind::input, "{}: {}: {} bytes were sent, {} expected; did it change?", address_.shown, file.name,
         found.text.size(), file.bytes);
  if (file.name == index_name) index_text_ = found.text;
  create(folder_ + "/" + file.name).write(found.text.data(), int64_t(found.text.size()), 0);
  return true;
}

/// Refuses a shard that could change without a trace. A published hash is the version if the server names none.
void RemoteSource::check_version(const RemoteFile& file) const {
  if (file.is_fixed || !file.version.empty()) return;
  if (const PublishedFile* published = find(listing_.published, file.name); !published || !is_sha256(*published))
    fail(ErrorKind::input,
         "{}: {}: the server names no version of the file (ETag or Last-Modified), so a change could not be seen; "
         "download it, then convert the copy",
         address_.shown, file.name);
}

void RemoteSource::fetch_header(RemoteFile& file) {
  std::string begin;
  const auto append = [&](int64_t, std::string_view part) { begin += part; };
  const int64_t most = file.bytes < 0 ? length_and_format : std::min(file.bytes, length_and_format);
  listing_.client->read(file, 0, most, append);
  check_version(file);
  uint64_t length = 0;
  if (begin.size() >= 8) std::memcpy(&length, begin.data(), 8);
  const bool is_possible = length <= uint64_t(max_header_bytes) && int64_t(length) <= file.bytes - 8;
  const auto here = int64_t(begin.size()), rest = is_possible ? int64_t(length) + 8 - here : 0;
  if (rest > 0) listing_.client->read(file, here, rest, append);
  create(folder_ + "/" + file.name).write(begin.data(), int64_t(begin.size()), 0);
}

/// A hole instead of a file that is skipped. Only its name counts, and whether it is small.
void RemoteSource::make_placeholder(const RemoteFile& file) const {
  const Fd made = create(folder_ + "/" + file.name);
  if (::ftruncate(made.get(), std::clamp<int64_t>(file.bytes, 0, max_text_bytes + 1)) != 0)
    fail_errno(file.name, "cannot set the size", errno);
}

void RemoteSource::fetch_config_and_index() {
  constexpr const char* names[] = {config_name, index_name};
  bool is_here[2] = {};
  run_jobs(2, 2, [&](int64_t i) {
    const auto at = files_.find(names[i]);
    is_here[i] = at != files_.end() && fetch_text(at->second, !listing_.is_whole);
  });
  if (!listing_.is_whole && !is_here[0] && !is_here[1])
    fail(ErrorKind::input, "{}: no {} and no {}; a checkpoint's folder was expected", address_.shown, config_name,
         index_name);
}

/// The shards that the index names, or else the *.safetensors of the folder.
std::set<std::string> RemoteSource::shard_names() const {
  std::set<std::string> names;
  Problems problems;  // the same text is parsed again when the checkpoint is opened
  if (!index_text_.empty()) {
    for (const auto& [tensor, file] : parse_index(index_text_, problems).weight_map)
      if (is_safe_name(file) && reserved(file) != Reserved::everywhere) names.insert(file);
    return names;
  }
  for (const auto& [name, file] : files_)
    if (name.find('/') == name.npos && !name.starts_with(".") && name.ends_with(".safetensors")) names.insert(name);
  if (!listing_.is_whole) names.insert("model.safetensors");
  return names;
}

void RemoteSource::fetch_companion(RemoteFile& file, Extent extent) {
  if (extent == Extent::headers && file.bytes < 0) {
    const std::optional<int64_t> bytes = listing_.client->size(file.name, file.url);
    if (!bytes) return;
    file.bytes = *bytes;
  }
  if (extent == Extent::all || file.bytes <= most_small_bytes) return void(fetch_text(file, !listing_.is_whole));
  make_placeholder(file);
  const std::lock_guard lock(mutex_);
  unread_.insert(file.name);
}

void RemoteSource::fetch_others(Extent extent) {
  const std::set<std::string> shards = shard_names();
  if (!listing_.is_whole)
    for (const std::string& name : shards)
      files_.emplace(name, RemoteFile{.name = name, .url = url_in_folder(address_, name)});
  std::vector<RemoteFile*> files;
  for (auto& [name, file] : files_)
    if (name != config_name && name != index_name) files.push_back(&file);
  run_jobs(int64_t(files.size()), std::max(2, most_requests() / 2), [&](int64_t i) {
    RemoteFile& file = *files[size_t(i)];
    if (shards.contains(file.name))
      fetch_header(file);
    else if (may_be_companion(file.name, file.bytes))
      fetch_companion(file, extent);
    else
      make_placeholder(file);
  });
  if (!listing_.is_whole)
    note(fmt::format("{}: has no SHA256SUMS, so only companions with usual names are copied", address_.shown));
}

void RemoteSource::set_state(Shard& shard) const {
  const RemoteFile& file = files_.at(shard.name);
  shard.state = {.bytes = file.bytes, .mtime_ns = file.modified_ns, .device = 0, .inode = 0};
  shard.version = file.version;
  const PublishedFile* published = find(listing_.published, file.name);
  if (shard.version.empty()) shard.version = published ? published->hash : "unknown";  // unknown: has no header
  shard.ctime_ns = 0;
  shard.links = 0;
}

void RemoteSource::check_unchanged() const {
  for (const char* name : {config_name, index_name}) {
    const std::string path = folder_ + "/" + name;
    if (!fs::exists(path) || files_.at(name).is_fixed) continue;
    const auto found = listing_.client->text(name, files_.at(name).url, max_text_bytes);
    if (!found.absent.empty() || found.text != read_text(open_read(path, name)))
      fail(ErrorKind::input, "{}: {}: changed while it was read; start again", address_.shown, name);
  }
}

std::unique_ptr<RemoteReader> RemoteSource::reader(const std::vector<Shard>& shards) {
  std::vector<RemoteFile*> files;
  for (const Shard& s : shards) files.push_back(&files_.at(s.name));
  return std::make_unique<RemoteReader>(*listing_.client, files);
}

}  // namespace mxfp4
