// The hashes that a checkpoint's publisher gives for its files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/digest.h"

namespace mxfp4 {

/// The hash is hexadecimal: 64 digits of SHA-256, or 40 of Git's SHA-1 for a blob, which the hub has for small files.
struct PublishedFile {
  std::string name;
  int64_t bytes = -1;  // -1: not published
  std::string hash;
  std::string by;  // "cache", "metadata", or the name of the list
  friend bool operator==(const PublishedFile&, const PublishedFile&) = default;
};

/// By name.
using PublishedList = std::vector<PublishedFile>;
const PublishedFile* find(const PublishedList& list, std::string_view name);

/// Whether a text is a hash of either kind, in small letters.
bool is_published_hash(std::string_view text);
bool is_sha256(const PublishedFile& file);
/// "SHA-256" or "Git's SHA-1".
const char* kind_of_hash(const PublishedFile& file);
/// A digest of the same kind, ready for the contents of a file with `bytes` bytes.
Digest digest_like(const PublishedFile& file, int64_t bytes);
/// That hash of a whole file's text.
std::string hash_like(const PublishedFile& file, std::string_view text);

/// Reads a SHA256SUMS, or the JSON list of a repository's files from the Hugging Face hub; `list` is its name. Throws
/// Error{input} that names the line or entry if the text is neither, names a file twice, or names none.
PublishedList parse_published_list(const std::string& text, const std::string& list);
/// The same for a file, or for the hashes that a remote source publishes.
PublishedList read_published_list(const std::string& path);

}  // namespace mxfp4
