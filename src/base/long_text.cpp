#include "src/base/long_text.h"

#include <algorithm>
#include <string>

namespace mxfp4 {

void give_text(const Fd& file, const TextSink& to) {
  std::string block;
  const int64_t bytes = file.stat().st_size;
  for (int64_t at = 0; at < bytes; at += int64_t(block.size())) {
    block.resize(size_t(std::min(bytes - at, text_block)));
    file.read(block.data(), int64_t(block.size()), at);
    to(block);
  }
}

Hash hash_of(const Fd& file) {
  Hasher hasher;
  give_text(file, [&](std::string_view block) { hasher.take(block.data(), int64_t(block.size())); });
  return hasher.hash();
}

}  // namespace mxfp4
