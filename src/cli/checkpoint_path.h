// What a user may say for a checkpoint's directory.
#pragma once

#include <string>

namespace mxfp4::cli {

/// The directory that is meant: of a repository in the Hugging Face cache, or of its name "openai/gpt-oss-20b" where
/// the cache has it, the snapshot of its main branch, which a note names; else what was given. The hub's
/// address in front of a name is left out. Throws Error{input} that says how to get it where only its name is known,
/// and which ones there are for a cache of several; Error{io} where nothing is there.
std::string checkpoint_path(const std::string& given);

}  // namespace mxfp4::cli
