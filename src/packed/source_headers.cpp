#include "src/packed/source_headers.h"

#include <algorithm>
#include <cstring>

#include "src/base/checksum.h"
#include "src/packed/manifest_format.h"

namespace mxfp4 {

namespace {

/// Reads a file from front to back and hashes all of it.
class HashedFile {
 public:
  explicit HashedFile(const Fd& file) : file_(file), left_(file.stat().st_size) {}

  int64_t at() const { return at_; }
  int64_t left() const { return left_; }
  std::string next(int64_t bytes) {
    std::string text(size_t(bytes), '\0');
    file_.read(text.data(), bytes, at_);
    hasher_.take(text.data(), bytes);
    at_ += bytes;
    left_ -= bytes;
    return text;
  }
  std::string checksum() {
    while (left_ > 0) next(std::min<int64_t>(left_, 1 << 20));
    return to_hex(hasher_.hash());
  }

 private:
  const Fd& file_;
  Hasher hasher_;
  int64_t at_ = 0, left_;
};

/// The JSON of the next header. Empty, with a problem, if the header is incomplete.
std::string next_header(HashedFile& file, const Shard& shard, Problems& problems) {
  uint64_t length = 0;
  if (file.left() >= 8) std::memcpy(&length, file.next(8).data(), 8);
  if (length > uint64_t(max_header_bytes)) {
    problems.error(source_headers_name, "header of {} bytes for {}, at most {} expected", length, shard.name,
                   max_header_bytes);
    return {};
  }
  if (length > 0 && length <= uint64_t(file.left())) return file.next(int64_t(length));
  problems.error(source_headers_name, "ends within the header of {}", shard.name);
  return {};
}

}  // namespace

int64_t source_headers_bytes(const Checkpoint& source) {
  int64_t bytes = 0;
  for (const Shard& s : source.shards) bytes += 8 + s.header.bytes;
  return bytes;
}

TextSource source_headers(const Checkpoint& source) {
  return [&source](const TextSink& to) {
    for (const Shard& s : source.shards) {
      const auto length = uint64_t(s.header.bytes);
      to({reinterpret_cast<const char*>(&length), sizeof length});
      to(s.header.read());
    }
  };
}

std::string source_headers_checksum(const Checkpoint& source) {
  Hasher hasher;
  source_headers(source)([&](std::string_view part) { hasher.take(part.data(), int64_t(part.size())); });
  return to_hex(hasher.hash());
}

void take_source_headers(const std::string& path, const std::string& checksum, Checkpoint& source, Problems& problems) {
  const Fd file = open_read(path, source_headers_name);
  HashedFile text(file);
  Problems unreadable;
  for (size_t i = 0; i < source.shards.size(); ++i) {
    Shard& s = source.shards[i];
    const std::string json = next_header(text, s, unreadable);
    if (json.empty()) break;
    const auto bytes = int64_t(json.size());
    s.header = {path, source_headers_name, text.at() - bytes, bytes, hash_bytes(json.data(), bytes)};
    for (Tensor& t : parse_header(json, s.state.bytes, where(source_headers_name, s.name), unreadable).tensors) {
      t.file = int(i);
      source.tensors.push_back(std::move(t));
    }
  }
  if (!unreadable.any() && text.left() > 0)
    unreadable.error(source_headers_name, "{} bytes more than the headers have", text.left());
  if (text.checksum() != checksum)
    return problems.error(source_headers_name, "it does not have the checksum in {}", manifest_name);
  std::sort(source.tensors.begin(), source.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(source.tensors.begin(), source.tensors.end(),
                                        [](const Tensor& a, const Tensor& b) { return a.name == b.name; });
  if (twice != source.tensors.end()) unreadable.error(where(source_headers_name, twice->name), "in two shards");
  if (unreadable.any()) problems.add(Error(ErrorKind::input, unreadable.errors()));
}

}  // namespace mxfp4
