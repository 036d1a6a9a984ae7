// Accepts a directory, a repository of the Hugging Face cache, or the repository's name for a checkpoint.
#pragma once

#include <string>

namespace mxfp4::cli {

/// The checkpoint's directory for `given`:
/// - A repository in the Hugging Face cache, or its name ("openai/gpt-oss-20b"), gives the snapshot of its main branch.
/// A note names the snapshot.
/// - hf://OWNER/NAME that the cache lacks, and every other address of a remote source, stays as it is.
/// - Any other path stays as it is.
///
/// The hub's address before a name is removed. Throws Error{input} if the cache lacks the repository, with the command
/// that downloads it, or if the path is a cache of several models. Throws Error{io} if nothing has the path.
std::string checkpoint_path(const std::string& given);

}  // namespace mxfp4::cli
