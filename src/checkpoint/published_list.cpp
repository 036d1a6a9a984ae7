#include "src/checkpoint/published_list.h"

#include <algorithm>
#include <filesystem>

#include "src/base/file.h"
#include "src/checkpoint/field.h"
#include "src/checkpoint/remote_listing.h"
#include "src/remote/address.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_list_bytes = int64_t(256) << 20;
constexpr size_t sha256_digits = 64, sha1_digits = 40;
constexpr std::string_view kind_in_front = "sha256:";

std::string in_small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'F') c = char(c - 'A' + 'a');
  return out;
}

/// `sha256sum ./NAME` writes a prefix that names do not have.
std::string name_in(std::string_view text) {
  while (text.starts_with("./")) text.remove_prefix(2);
  return std::string(text);
}

/// A line of sha256sum: 64 digits, a space, a space or an asterisk, the name.
PublishedFile read_line(std::string_view line, const std::string& where) {
  const std::string hash = in_small_letters(line.substr(0, sha256_digits));
  const bool has_hash = hash.size() == sha256_digits && is_published_hash(hash);
  const std::string_view rest = has_hash ? line.substr(sha256_digits) : "";
  if (rest.size() < 3 || rest[0] != ' ' || (rest[1] != ' ' && rest[1] != '*'))
    fail(ErrorKind::input, "{}: '{}'; 64 hexadecimal digits, two spaces and a file name were expected", where,
         line.substr(0, 100));
  return {.name = name_in(rest.substr(2)), .hash = hash, .by = {}};
}

PublishedList read_sums(std::string_view text, const std::string& list) {
  PublishedList files;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) files.push_back(read_line(line, fmt::format("{}: line {}", list, number)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return files;
}

/// Reads a file of the hub's list. The first oid of a file in LFS is the hash of its pointer, not of its contents.
PublishedFile read_entry(const Field& entry) {
  const bool in_lfs = entry.has("lfs") && !entry.at("lfs").json().is_null();
  const Field holder = in_lfs ? entry.at("lfs") : entry;
  std::string hash = in_small_letters(holder.at("oid").text());
  if (in_lfs && hash.starts_with(kind_in_front)) hash.erase(0, kind_in_front.size());
  if (!is_published_hash(hash) || hash.size() != (in_lfs ? sha256_digits : sha1_digits))
    holder.at("oid").refuse("'{}' is no hash of {} hexadecimal digits", hash, in_lfs ? sha256_digits : sha1_digits);
  return {.name = entry.at("path").text(), .bytes = holder.at("size").number(), .hash = hash, .by = {}};
}

PublishedList read_tree(std::string_view text, const std::string& list) {
  const Json json = parse_json(text, list);
  const Document document{list};
  PublishedList files;
  Field(json, document).each([&](const Field& entry) {
    const bool is_folder = entry.has("type") && entry.at("type").text() == "directory";
    if (!is_folder) files.push_back(read_entry(entry));
  });
  return files;
}

void refuse_second(const PublishedList& sorted, const std::string& list) {
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != sorted.end()) fail(ErrorKind::input, "{}: names {} twice", list, printable(twice->name));
}

}  // namespace

const PublishedFile* find(const PublishedList& list, std::string_view name) {
  const auto it = std::lower_bound(list.begin(), list.end(), name,
                                   [](const PublishedFile& f, std::string_view n) { return f.name < n; });
  return it != list.end() && it->name == name ? &*it : nullptr;
}

bool is_published_hash(std::string_view text) {
  return (text.size() == sha256_digits || text.size() == sha1_digits) &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool is_sha256(const PublishedFile& file) { return file.hash.size() == sha256_digits; }

const char* kind_of_hash(const PublishedFile& file) { return is_sha256(file) ? "SHA-256" : "Git's SHA-1"; }

Digest digest_like(const PublishedFile& file, int64_t bytes) {
  if (is_sha256(file)) return Digest(DigestKind::sha256);
  Digest digest(DigestKind::sha1);
  const std::string front = fmt::format("blob {}", bytes);
  digest.take(front.c_str(), int64_t(front.size()) + 1);  // with its final zero byte
  return digest;
}

std::string hash_like(const PublishedFile& file, std::string_view text) {
  Digest digest = digest_like(file, int64_t(text.size()));
  digest.take(text.data(), int64_t(text.size()));
  return digest.hex();
}

PublishedList parse_published_list(const std::string& text, const std::string& list) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != text.npos && (text[first] == '[' || text[first] == '{');
  PublishedList files = is_json ? read_tree(text, list) : read_sums(text, list);
  if (files.empty()) fail(ErrorKind::input, "{}: names no file; a SHA256SUMS or the hub's list was expected", list);
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (PublishedFile& f : files) f.by = std::filesystem::path(list).filename().string();
  refuse_second(files, list);
  return files;
}

PublishedList read_published_list(const std::string& path) {
  if (!is_remote(path)) return parse_published_list(read_text(path, max_list_bytes), path);
  PublishedList files = list_remote(parse_remote(path)).published;
  if (files.empty()) fail(ErrorKind::input, "{}: publishes no hashes; give the file of a list", path);
  return files;
}

}  // namespace mxfp4
