// Whole files of the source in the output without copying their bytes.
#pragma once

#include <string>

namespace mxfp4 {

/// How shards that hold no expert come into OUT. none: their tensors are copied into new files. The others keep shard
/// and name: hard (one file with two names), reflink (a copy that shares its blocks until one is written to), or
/// automatic: a reflink, else a hard link, else a copy.
enum class Link { none, automatic, hard, reflink };

/// Makes `to`, which may exist, a link of the file `from`, itself no link. False where Link::automatic cannot;
/// throws Error{io} where another cannot.
bool link_file(Link how, const std::string& from, const std::string& to);

}  // namespace mxfp4
