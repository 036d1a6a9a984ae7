// Whole files of the source in the output without copying their bytes.
#pragma once

namespace mxfp4 {

/// How shards that hold no expert come into OUT whole, under their names. none: copied; hard: one file with two names;
/// reflink: a copy that shares its blocks until one is written to; automatic: a reflink, else a hard link, else a copy.
enum class Link { none, automatic, hard, reflink };

}  // namespace mxfp4
