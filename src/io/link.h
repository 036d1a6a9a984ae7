// Links that are made in an output, and links that are found in a source.
#pragma once

namespace mxfp4 {

/// How shards without experts come into OUT, unchanged and under their names:
/// - none: They are copied.
/// - hard: They become hard links.
/// - reflink: A copy shares its blocks with the source until either file is written.
/// - automatic: A reflink if possible, else a hard link, else a copy.
enum class Link { none, automatic, hard, reflink };

/// How to treat links that lead out of a source's folder. Links into the blobs/ of the same Hugging Face cache entry
/// are always followed.
/// - stay: refuse them
/// - offer: refuse them, and name --follow-links in the message
/// - follow: follow them
enum class Links { stay, offer, follow };

}  // namespace mxfp4
