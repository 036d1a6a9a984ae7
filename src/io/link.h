// Links that are made in an output, and links that are found in a source.
#pragma once

namespace mxfp4 {

/// How shards that hold no expert come into OUT whole, under their names. none: copied; hard: one file with two names;
/// reflink: a copy that shares its blocks until one is written to; automatic: a reflink, else a hard link, else a copy.
enum class Link { none, automatic, hard, reflink };

/// Links that leave a source's folder: refused; refused by a message that names --follow-links; or followed. Links into
/// the blobs/ of the same Hugging Face cache entry are always followed.
enum class Links { stay, offer, follow };

}  // namespace mxfp4
