// A text that may be too large for memory, read in parts: a file, or a string.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "src/base/checksum.h"
#include "src/base/file.h"

namespace mxfp4 {

/// Takes a text in parts, one after the other.
using TextSink = std::function<void(std::string_view)>;
/// Passes a text to a sink.
using TextSource = std::function<void(const TextSink&)>;

/// How many bytes of a long text are in memory at once.
inline constexpr int64_t text_block = int64_t(1) << 20;

struct TextRange {
  int64_t offset = 0, bytes = 0;
};

class LongText {
 public:
  explicit LongText(std::string text) : text_(std::move(text)), bytes_(int64_t(text_.size())) {}
  explicit LongText(Fd file) : file_(std::move(file)), bytes_(file_.stat().st_size) {}

  int64_t bytes() const { return bytes_; }
  std::string read(TextRange range) const;
  /// Passes a range to a sink, in blocks.
  void give(TextRange range, const TextSink& to) const;
  /// The first position of a short text; -1: it is not there.
  int64_t find(std::string_view text) const;

 private:
  Fd file_;  // none: all is in text_
  std::string text_;
  int64_t bytes_;
};

/// The hash of a whole file, read in blocks.
Hash hash_of(const Fd& file);

}  // namespace mxfp4
