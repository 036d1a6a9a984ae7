#include "src/checkpoint/published.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/companion.h"
#include "src/checkpoint/remote_source.h"
#include "src/io/source_folder.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_metadata_bytes = 4096;

std::string what_to_do(const PublishedFile& published) {
  if (published.by.find("://") != std::string::npos)
    return "repeat the command, and ask the publisher if it fails again";
  return "download it again, or use --no-published for a checkpoint that was changed on purpose";
}

/// The hash of a file in Hugging Face's cache: the name of the blob that it links to.
std::string hash_in_cache(const Folder& dir, const std::string& name) {
  const fs::path target = dir.link_target(name).value_or("");
  return target.parent_path().filename() == "blobs" ? target.filename().string() : "";
}

/// The hash of a file that was downloaded into a folder.
std::string hash_in_metadata(const Folder& dir, const std::string& name) {
  const std::string path = ".cache/huggingface/download/" + name + ".metadata";
  if (!dir.has_file(path)) return {};
  std::istringstream lines;
  try {
    lines.str(read_text(dir, path, max_metadata_bytes));
  } catch (const Error&) {  // Hugging Face's tools ignore such a file as well
    return {};
  }
  std::string commit, hash;
  lines >> commit >> hash;
  return hash;
}

/// Adds a problem if the sizes differ.
bool has_published_size(const PublishedFile& published, int64_t bytes, Problems& problems) {
  const bool is_same = published.bytes < 0 || published.bytes == bytes;
  if (!is_same)
    problems.error(published.name, "{} bytes, {} as published ({}); {}", bytes, published.bytes, published.by,
                   what_to_do(published));
  return is_same;
}

PublishedFile check_text(const std::string& text, PublishedFile published, Problems& problems) {
  const auto bytes = int64_t(text.size());
  if (has_published_size(published, bytes, problems))
    compare_published(published, hash_like(published, text), problems);
  published.bytes = bytes;
  return published;
}

PublishedFile check_size(int64_t bytes, PublishedFile published, Problems& problems) {
  has_published_size(published, bytes, problems);
  published.bytes = bytes;
  return published;
}

}  // namespace

std::vector<std::string> original_files(const Checkpoint& ck) {
  std::vector<std::string> names = ck.companions;
  for (const Shard& s : ck.shards) names.push_back(s.name);
  if (!ck.config_text.empty()) names.push_back(config_name);
  if (ck.index.bytes > 0) names.push_back(index_name);
  std::sort(names.begin(), names.end());
  return names;
}

const Shard* find_shard(const Checkpoint& ck, const std::string& name) {
  const auto it = std::find_if(ck.shards.begin(), ck.shards.end(), [&](const Shard& s) { return s.name == name; });
  return it == ck.shards.end() ? nullptr : &*it;
}

std::string original_text(const Checkpoint& ck, const std::string& name) {
  return name == config_name ? ck.config_text : name == index_name ? ck.index.read() : companion_text(ck, name);
}

PublishedList published_beside(const Checkpoint& ck) {
  if (ck.remote) return ck.remote->published();
  PublishedList list;
  for (const std::string& name : original_files(ck)) {
    std::string hash = hash_in_cache(ck.folder->folder(), name), by = "cache";
    if (!is_published_hash(hash)) hash = hash_in_metadata(ck.folder->folder(), name), by = "metadata";
    if (is_published_hash(hash)) list.push_back({.name = name, .hash = hash, .by = by});
  }
  return list;
}

PublishedList check_published(const Checkpoint& ck, const PublishedList& list, bool lists_all, Problems& problems) {
  PublishedList found;
  for (const std::string& name : original_files(ck)) {
    const PublishedFile* published = find(list, name);
    const Shard* shard = find_shard(ck, name);
    if (published && shard)
      found.push_back(check_size(shard->state.bytes, *published, problems));
    else if (published && ck.unread.contains(name))
      found.push_back(check_size(ck.companion_files.at(name).state.bytes, *published, problems));
    else if (published)
      found.push_back(check_text(original_text(ck, name), *published, problems));
    else if (lists_all && shard)
      report_not_listed(name, list, problems);
  }
  return found;
}

void report_not_listed(const std::string& name, const PublishedList& list, Problems& problems) {
  problems.error(name, "not in {}; give a list with all shards", list.front().by);
}

void compare_published(const PublishedFile& published, const std::string& is, Problems& problems) {
  if (is != published.hash)
    problems.error(published.name, "{} is {}, {} as published ({}); {}", kind_of_hash(published), is, published.hash,
                   published.by, what_to_do(published));
}

}  // namespace mxfp4
