// Links that are found in a source.
#pragma once

namespace mxfp4 {

/// How to treat links that lead out of a source's folder. Links into the blobs/ of the same Hugging Face cache entry
/// are always followed.
/// - stay: refuse them
/// - offer: refuse them, and name --follow-links in the message
/// - follow: follow them
enum class Links { stay, offer, follow };

}  // namespace mxfp4
