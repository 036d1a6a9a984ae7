// What a user may say for a checkpoint's directory.
#pragma once

#include <string>

namespace mxfp4::cli {

/// The directory that is meant: of a repository in the Hugging Face cache, or of its name "openai/gpt-oss-20b" where
/// the cache has it, the snapshot of its main branch, which a note names; else `text`. Throws Error{input} that says
/// how to get it where only its name is known, and which ones there are for a cache of several.
std::string checkpoint_path(const std::string& text);

}  // namespace mxfp4::cli
