// A text that may be too large for memory: it is passed on in parts, one after the other.
#pragma once

#include <cstdint>
#include <functional>
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

/// Passes on a whole file, in blocks.
void give_text(const Fd& file, const TextSink& to);

/// The hash of a whole file, read in blocks.
Hash hash_of(const Fd& file);

}  // namespace mxfp4
