#include "src/checkpoint/companion.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "src/base/folder.h"
#include "src/checkpoint/checkpoint.h"
#include "src/io/source_folder.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_companion_bytes = int64_t(256) << 20;

/// Whether the last part of a relative name begins with a dot.
bool is_hidden(const std::string& name) { return name[name.rfind('/') + 1] == '.'; }

/// Why a file is skipped, by its name and size; empty if it is not.
std::string why_left_out(const fs::path& relative, int64_t bytes) {
  static const std::set<std::string> folders = {"original", "metal", "inference"};
  if (is_own_name(relative.string())) return "reserved name";
  if (folders.count(relative.begin()->string()) || is_weights(relative)) return "other weights";
  return bytes > max_companion_bytes ? "more than 256 MiB" : "";
}

class Finder {
 public:
  Finder(Checkpoint& ck, Problems& problems) : ck_(ck), problems_(problems) {
    for (const Shard& s : ck.shards) shards_.insert(s.name);
  }

  bool visit(const Entry& entry) {
    struct stat s = entry.state;
    const bool found = !entry.is_link() || ::stat(ck_.folder->path(entry.name).c_str(), &s) == 0;
    const bool is_folder = found && S_ISDIR(s.st_mode);
    if (!found || is_hidden(entry.name))
      return skip(entry.name + (is_folder ? "/" : ""), found ? "hidden" : "link to nothing");
    if (is_folder) return enters(entry);
    if (entry.name == config_name || entry.name == index_name || shards_.count(entry.name)) return false;
    if (!is_safe_name(entry.name)) return skip(entry.name, "unsafe name");
    if (!S_ISREG(s.st_mode)) return skip(entry.name, "not a file");
    if (const std::string why = why_left_out(entry.name, s.st_size); !why.empty()) return skip(entry.name, why);
    if (entry.is_link() && ck_.folder->leads_out(entry.name)) return skip(entry.name, "link out of the checkpoint");
    ck_.companions.push_back(entry.name);
    open(entry.name);
    return false;
  }

 private:
  bool skip(const std::string& name, const std::string& why) { return ck_.left_out.emplace(name, why), false; }

  bool enters(const Entry& entry) {
    const bool enter = std::count(entry.name.begin(), entry.name.end(), '/') < 2 && !entry.is_link();
    const bool readable = ::euidaccess(ck_.folder->path(entry.name).c_str(), R_OK | X_OK) == 0;
    if (!why_left_out(fs::path(entry.name) / "file", 0).empty()) return enter && readable;
    if (!enter) skip(entry.name + "/", entry.is_link() ? "link to a folder" : "more than two folders down");
    if (enter && !readable)
      problems_.error(entry.name, "a folder that cannot be read: {}", std::generic_category().message(errno));
    if (!enter || !readable) return false;
    if (!is_checkpoint(entry.name)) return true;
    problems_.warn(entry.name + "/", "a checkpoint in a folder, skipped as a whole; convert or copy it separately");
    return false;
  }

  /// Whether a folder has a config and weights, and no shard of this checkpoint.
  bool is_checkpoint(const std::string& name) const {
    const Folder folder = ck_.folder->folder().find(name);
    if (!folder || !folder.has(config_name)) return false;
    bool weights = false, shards = false;
    walk(
        folder,
        [&](const Entry& entry) {
          shards |= shards_.count(name + "/" + entry.name) > 0;
          weights |= is_weights(entry.name) && !is_hidden(entry.name);
          return !is_hidden(entry.name);
        },
        Unreadable::skip);
    return weights && !shards;
  }

  void open(const std::string& name) {
    const Fd file = ck_.folder->open(name, problems_);
    if (!file) return;
    if (const std::string pointer = lfs_pointer(file); !pointer.empty()) problems_.error(name, "{}", pointer);
    ck_.companion_files[name] = source_shard(name, ck_.folder->path(name), file);
  }

  Checkpoint& ck_;
  Problems& problems_;
  std::unordered_set<std::string> shards_;
};

}  // namespace

bool is_weights(const fs::path& name) {
  static const std::set<std::string> extensions = {".safetensors", ".bin",     ".pt",   ".pth", ".gguf",
                                                   ".h5",          ".msgpack", ".onnx", ".ckpt"};
  return extensions.count(name.extension().string()) > 0;
}

bool may_be_companion(const std::string& name, int64_t bytes) {
  const fs::path path = name;
  const bool hidden = std::any_of(path.begin(), path.end(), [](const fs::path& p) { return p.string()[0] == '.'; });
  return !hidden && std::count(name.begin(), name.end(), '/') <= 2 && why_left_out(path, bytes).empty();
}

void find_companions(Checkpoint& ck, Problems& problems) {
  Finder finder(ck, problems);
  walk(ck.folder->folder(), [&](const Entry& entry) { return finder.visit(entry); });
  std::sort(ck.companions.begin(), ck.companions.end());
}

namespace {

Fd open_companion(const Checkpoint& ck, const std::string& name) {
  const auto found = ck.companion_files.find(name);
  if (found != ck.companion_files.end()) return open_again(found->second);
  Problems problems;
  Fd file = ck.folder->open(name, problems);
  problems.throw_if_any();
  return file;
}

}  // namespace

TextSource companion_source(const Checkpoint& ck, const std::string& name) {
  return [&ck, name](const TextSink& to) {
    Hasher hasher;
    give_text(limited(open_companion(ck, name), max_companion_bytes), [&](std::string_view part) {
      hasher.take(part.data(), int64_t(part.size()));
      to(part);
    });
    const auto known = ck.companion_checksums.find(name);
    if (known != ck.companion_checksums.end() && to_hex(hasher.hash()) != known->second)
      fail(ErrorKind::input, "{}: does not have the checksum that the output's manifest has for it; damaged?", name);
  };
}

std::string companion_text(const Checkpoint& ck, const std::string& name) {
  std::string text;
  companion_source(ck, name)([&](std::string_view part) { text += part; });
  return text;
}

std::string companion_checksum(const Checkpoint& ck, const std::string& name) {
  Hasher hasher;
  companion_source(ck, name)([&](std::string_view part) { hasher.take(part.data(), int64_t(part.size())); });
  return to_hex(hasher.hash());
}

}  // namespace mxfp4
