// The headers of the checkpoint's shards, kept in an output. They describe the source's tensors, and unpack needs them
// to restore the original files byte for byte.
#pragma once

#include <string>

#include "src/base/long_text.h"
#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

inline constexpr const char* source_headers_name = "packed/source-headers";
inline constexpr const char* source_index_name = "packed/source-index";  // verbatim

/// Length field and JSON of every shard, in the order of shards. `source` must outlive the returned function.
TextSource source_headers(const Checkpoint& source);
std::string source_headers_checksum(const Checkpoint& source);

/// The length of source_headers() in bytes.
int64_t source_headers_bytes(const Checkpoint& source);

/// Reads such a file. Fills the tensors of `source`, and sets the headers of its shards to ranges of this file. If the
/// file does not have the checksum, or its headers do not fit these shards, it is a problem.
void take_source_headers(const std::string& path, const std::string& checksum, Checkpoint& source, Problems& problems);

}  // namespace mxfp4
