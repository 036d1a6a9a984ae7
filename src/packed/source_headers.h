// The headers of the checkpoint's shards in an output: with them unpack makes the very files that were converted, and
// an output's description of its source has something to agree with.
#pragma once

#include <string>

#include "src/base/long_text.h"
#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

inline constexpr const char* source_headers_name = "packed/source-headers";

/// Length field and JSON of every shard, one after the other. `source` must live on.
TextSource source_headers(const Checkpoint& source);
std::string source_headers_checksum(const Checkpoint& source);

/// How many bytes that is.
int64_t source_headers_bytes(const Checkpoint& source);

/// Gives the shards of a manifest's description their headers from such a file, which stays where it is, and the
/// tensors their offsets. A problem where it does not have the checksum, and, where the two do not describe the same
/// tensors, for each difference.
void take_source_headers(const std::string& path, const std::string& checksum, Checkpoint& source, Problems& problems);

}  // namespace mxfp4
