#include "src/packed/source_headers.h"

#include <algorithm>
#include <cstring>

#include "src/packed/manifest_format.h"

namespace mxfp4 {

namespace {

/// The tensors by name, as Checkpoint has them; the shards' headers are taken on the way.
std::vector<Tensor> split(std::string_view text, Checkpoint& source, Problems& problems) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < source.shards.size(); ++i) {
    Shard& s = source.shards[i];
    uint64_t length = 0;
    if (text.size() >= 8) std::memcpy(&length, text.data(), 8);
    if (text.size() < 8 || length > text.size() - 8) {
      problems.error(source_headers_name, "ends within the header of {}", s.name);
      return {};
    }
    s.header = text.substr(8, length);
    text.remove_prefix(8 + length);
    const std::string at = where(source_headers_name, s.name);
    for (Tensor& t : parse_header(s.header, s.state.bytes, at, problems).tensors) {
      t.file = int(i);
      tensors.push_back(std::move(t));
    }
  }
  if (!text.empty()) problems.error(source_headers_name, "{} bytes more than the headers have", text.size());
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return tensors;
}

void compare(const Tensor& is, const Tensor& listed, Problems& problems) {
  if (is.dtype != listed.dtype || is.shape != listed.shape || is.file != listed.file)
    problems.error(where(manifest_name, is.name), "file or shape ({}) is not that in {} ({})",
                   describe(listed.dtype, listed.shape), source_headers_name, describe(is.dtype, is.shape));
}

}  // namespace

std::string source_headers(const Checkpoint& source) {
  std::string out;
  for (const Shard& s : source.shards) out += with_length(s.header);
  return out;
}

void take_source_headers(const std::string& text, Checkpoint& source, Problems& problems) {
  const int64_t before = problems.count();
  const std::vector<Tensor> tensors = split(text, source, problems);
  if (problems.count() != before) return;
  auto is = tensors.begin();
  auto listed = source.tensors.begin();
  while (is != tensors.end() || listed != source.tensors.end()) {
    if (listed == source.tensors.end() || (is != tensors.end() && is->name < listed->name)) {
      problems.error(where(manifest_name, is->name), "not listed, but in {}", source_headers_name);
      ++is;
    } else if (is == tensors.end() || listed->name < is->name) {
      problems.error(where(manifest_name, listed->name), "listed, but not in {}", source_headers_name);
      ++listed;
    } else {
      compare(*is, *listed, problems);
      (listed++)->offset = (is++)->offset;
    }
  }
}

}  // namespace mxfp4
