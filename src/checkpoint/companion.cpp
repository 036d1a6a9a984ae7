#include "src/checkpoint/companion.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "src/base/folder.h"
#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_companion_bytes = int64_t(256) << 20;

/// Whether the last part of a relative name begins with a dot.
bool is_hidden(const std::string& name) { return name[name.rfind('/') + 1] == '.'; }

bool is_left_out(const fs::path& relative, int64_t bytes) {
  static const std::set<std::string> folders = {"original", "metal", "inference"};
  return folders.count(relative.begin()->string()) || is_own_name(relative.string()) || is_weights(relative) ||
         bytes > max_companion_bytes;
}

class Finder {
 public:
  Finder(Checkpoint& ck, Problems& problems) : ck_(ck), problems_(problems), real_dir_(fs::canonical(ck.dir)) {
    for (const Shard& s : ck.shards) shards_.insert(s.name);
  }

  bool visit(const Entry& entry) {
    const fs::path resolved = resolve(entry.path);
    const bool is_folder = !resolved.empty() && fs::is_directory(resolved);
    if (resolved.empty() || is_hidden(entry.name))
      return ck_.left_out.push_back(entry.name + (is_folder ? "/" : "")), false;
    if (is_folder) return enters(entry, resolved);
    if (entry.name == config_name || entry.name == index_name || shards_.count(entry.name)) return false;
    const bool carried = is_safe_name(entry.name) && fs::is_regular_file(resolved) &&
                         may_follow(resolved, real_dir_, ck_.links) &&
                         !is_left_out(entry.name, int64_t(fs::file_size(resolved)));
    (carried ? ck_.companions : ck_.left_out).push_back(entry.name);
    if (carried) check(entry.name, resolved.string());
    return false;
  }

 private:
  bool enters(const Entry& entry, const fs::path& resolved) {
    const bool enter = std::count(entry.name.begin(), entry.name.end(), '/') < 2 && !entry.is_link();
    const bool readable = ::euidaccess(resolved.c_str(), R_OK | X_OK) == 0;
    if (is_left_out(fs::path(entry.name) / "file", 0)) return enter && readable;
    if (!enter) ck_.left_out.push_back(entry.name + "/");
    if (enter && !readable)
      problems_.error(entry.name, "a folder that cannot be read: {}", std::generic_category().message(errno));
    if (!enter || !readable) return false;
    if (!is_checkpoint(entry)) return true;
    problems_.warn(entry.name + "/", "a checkpoint in a folder, skipped as a whole; convert or copy it separately");
    return false;
  }

  /// Whether a folder has a config and weights of its own, which no shard of this checkpoint is among.
  bool is_checkpoint(const Entry& folder) const {
    if (!fs::exists(folder.path / config_name)) return false;
    bool weights = false, shards = false;
    walk(
        folder.path,
        [&](const Entry& entry) {
          shards |= shards_.count(folder.name + "/" + entry.name) > 0;
          weights |= is_weights(entry.name) && !is_hidden(entry.name);
          return !is_hidden(entry.name);
        },
        Unreadable::skip);
    return weights && !shards;
  }

  void check(const std::string& name, const std::string& path) {
    if (::euidaccess(path.c_str(), R_OK) != 0)
      problems_.error(name, "cannot be read: {}", std::generic_category().message(errno));
    else if (const std::string pointer = lfs_pointer(path); !pointer.empty())
      problems_.error(name, "{}", pointer);
  }

  Checkpoint& ck_;
  Problems& problems_;
  const fs::path real_dir_;
  std::unordered_set<std::string> shards_;
};

}  // namespace

bool is_weights(const fs::path& name) {
  static const std::set<std::string> extensions = {".safetensors", ".bin",     ".pt",   ".pth", ".gguf",
                                                   ".h5",          ".msgpack", ".onnx", ".ckpt"};
  return extensions.count(name.extension().string()) > 0;
}

void find_companions(Checkpoint& ck, Problems& problems) {
  Finder finder(ck, problems);
  walk(ck.dir, [&](const Entry& entry) { return finder.visit(entry); });
  std::sort(ck.companions.begin(), ck.companions.end());
  std::sort(ck.left_out.begin(), ck.left_out.end());
}

TextSource companion_source(const Checkpoint& ck, const std::string& name) {
  return [&ck, name](const TextSink& to) {
    Problems problems;
    const auto elsewhere = ck.companion_paths.find(name);
    const std::string path =
        elsewhere != ck.companion_paths.end() ? elsewhere->second : real_path(ck.dir, name, problems, ck.links);
    problems.throw_if_any();
    const LongText text(open_text(path, max_companion_bytes, name));
    Hasher hasher;
    text.give({0, text.bytes()}, [&](std::string_view part) {
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
