// Whole files of the source in the output without copying their bytes.
#pragma once

#include <string>

namespace mxfp4 {

/// How shards that hold no expert come into OUT whole, under their names. none: copied; hard: one file with two names;
/// reflink: a copy that shares its blocks until one is written to; automatic: a reflink, else a hard link, else a copy.
enum class Link { none, automatic, hard, reflink };

/// Makes `to`, which may exist, a link of the file `from`, itself no link. False where it is to be copied;
/// throws Error{io} where Link::hard or Link::reflink cannot.
bool link_file(Link how, const std::string& from, const std::string& to);

}  // namespace mxfp4
