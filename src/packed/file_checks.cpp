#include "src/packed/file_checks.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "src/base/folder.h"
#include "src/base/long_text.h"
#include "src/packed/add_set.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace {

namespace fs = std::filesystem;

constexpr int64_t whole_file_limit = int64_t(1) << 30;

/// Files, and empty directories as "NAME/", of the opened directory.
std::vector<std::string> names_in(const HeldFiles& held) {
  try {
    std::vector<std::string> names;
    const std::vector<Entry> entries = entries_below(held.folder());
    for (size_t i = 0; i < entries.size(); ++i)
      if (!entries[i].is_folder())
        names.push_back(entries[i].name);
      else if (const std::string in = entries[i].name + "/";
               i + 1 == entries.size() || !entries[i + 1].name.starts_with(in))
        names.push_back(in);
    return names;
  } catch (const std::filesystem::filesystem_error&) {
    held.throw_if_replaced(manifest_name);
    throw;
  }
}

/// The checksum of a safetensors header. The length field may be damaged.
std::string header_checksum(const Fd& fd, int64_t bytes) {
  uint64_t length = 0;
  fd.read(&length, 8, 0);
  std::string header(size_t(std::min(bytes, 8 + int64_t(std::min(length, uint64_t(max_header_bytes))))), '\0');
  fd.read(header.data(), int64_t(header.size()), 0);
  return checksum_of(header);
}

bool may_be_there(const std::string& name) {
  return name == run_file || name == ".gitattributes" || name.starts_with(".git/") || name.starts_with(".cache/");
}

/// Whether open_packed() has read this file and reported its problems.
bool is_read_when_opened(const ListedFile& f) {
  return f.kind == file_kind::source_headers || f.kind == file_kind::source_index ||
         f.kind == file_kind::source_table || f.kind == file_kind::table;
}

}  // namespace

void check_files(const PackedCheckpoint& p, Problems& problems) {
  for (const ListedFile& f : p.manifest.files) {
    if (is_read_when_opened(f)) continue;
    Problems known;  // open_packed() has reported those of files with tensors
    const std::string path = p.held.path(f.name, f.holds_tensors() ? known : problems);
    if (path.empty()) continue;
    const Fd fd = open_read(path, f.name);
    const int64_t bytes = fd.stat().st_size;
    if (bytes != f.bytes) {
      problems.error(f.name, "{} bytes, {} expected", bytes, f.bytes);
      continue;
    }
    if (!f.holds_tensors() && bytes > whole_file_limit) {
      problems.error(f.name, "{} bytes, at most {} expected", bytes, whole_file_limit);
      continue;
    }
    if ((f.holds_tensors() ? header_checksum(fd, bytes) : to_hex(hash_of(fd))) != f.checksum)
      problems.error(f.name, "{} does not have the checksum in {}", f.holds_tensors() ? "the header" : "it",
                     manifest_name);
  }
}

void check_nothing_else(const PackedCheckpoint& packed, Problems& problems) {
  std::set<std::string> listed = {manifest_name};
  for (const ListedFile& f : packed.manifest.files) listed.insert(f.name);
  for (const std::string& name : names_in(packed.held))
    if (!listed.count(name) && !may_be_there(name)) problems.error(name, "not listed in {}", manifest_name);
}

namespace {

bool is_edited(const Folder& out, const ListedFile& f) {
  if (f.holds_tensors() || !out.has(f.name)) return false;
  if (!out.has_file(f.name)) return true;
  const Fd file = open_read(out, f.name);
  return file.stat().st_size != f.bytes || to_hex(hash_of(file)) != f.checksum;
}

}  // namespace

std::string edited_file(const Folder& out, const std::vector<ListedFile>& listed) {
  const auto edited = std::find_if(listed.begin(), listed.end(), [&](auto& f) { return is_edited(out, f); });
  return edited == listed.end() ? "" : edited->name;
}

std::vector<std::string> owned_files(const Folder& out) {
  if (!out.has(manifest_name)) return {};
  const std::vector<ListedFile> listed = read_listed_files(out);
  std::vector<std::string> names = {manifest_name};
  for (const ListedFile& f : listed)
    if (!is_edited(out, f)) names.push_back(f.name);
  return names;
}

void check_kinds(const PackedCheckpoint& p) {
  Problems problems;
  const std::set<std::string_view> known = {file_kind::tensors,      file_kind::canary,       file_kind::companion,
                                            file_kind::config,       file_kind::index,        file_kind::source_headers,
                                            file_kind::source_index, file_kind::source_table, file_kind::table};
  for (const ListedFile& f : p.manifest.files)
    if (!known.count(f.kind)) problems.error(where(p.dir, f.name), "unknown kind '{}'; use a newer mxfp4-pack", f.kind);
  problems.throw_if_any();
}

}  // namespace mxfp4
