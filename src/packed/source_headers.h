// The headers of the checkpoint's shards in an output: they describe the source's tensors, and with them unpack makes
// the very files that were converted.
#pragma once

#include <string>

#include "src/base/long_text.h"
#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

inline constexpr const char* source_headers_name = "packed/source-headers";
inline constexpr const char* source_index_name = "packed/source-index";  // verbatim

/// Length field and JSON of every shard, one after the other. `source` must live on.
TextSource source_headers(const Checkpoint& source);
std::string source_headers_checksum(const Checkpoint& source);

/// How many bytes that is.
int64_t source_headers_bytes(const Checkpoint& source);

/// Gives the shards of a manifest's description their headers from such a file, which stays where it is, and the
/// source its tensors. A problem where it does not have the checksum, or is no list of these shards' headers.
void take_source_headers(const std::string& path, const std::string& checksum, Checkpoint& source, Problems& problems);

}  // namespace mxfp4
