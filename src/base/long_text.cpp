#include "src/base/long_text.h"

#include <algorithm>

namespace mxfp4 {

namespace {

void give_blocks(const Fd& file, TextRange range, const TextSink& to) {
  std::string block;
  for (const int64_t end = range.offset + range.bytes; range.offset < end; range.offset += int64_t(block.size())) {
    block.resize(size_t(std::min(end - range.offset, text_block)));
    file.read(block.data(), int64_t(block.size()), range.offset);
    to(block);
  }
}

}  // namespace

std::string LongText::read(TextRange range) const {
  if (!file_) return text_.substr(size_t(range.offset), size_t(range.bytes));
  std::string text(size_t(range.bytes), '\0');
  file_.read(text.data(), range.bytes, range.offset);
  return text;
}

void LongText::give(TextRange range, const TextSink& to) const {
  if (file_) return give_blocks(file_, range, to);
  to(std::string_view(text_).substr(size_t(range.offset), size_t(range.bytes)));
}

int64_t LongText::find(std::string_view text) const {
  for (int64_t at = 0; at < bytes_; at += text_block) {
    const std::string block = read({at, std::min(text_block + int64_t(text.size()) - 1, bytes_ - at)});
    if (const size_t found = block.find(text); found != block.npos) return at + int64_t(found);
  }
  return -1;
}

Hash hash_of(const Fd& file) {
  Hasher hasher;
  give_blocks(file, {0, file.stat().st_size},
              [&](std::string_view block) { hasher.take(block.data(), int64_t(block.size())); });
  return hasher.hash();
}

}  // namespace mxfp4
