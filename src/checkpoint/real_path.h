// Where a name below a directory leads to. Nothing outside of the directory is read unless its user asks for that.
#pragma once

#include <filesystem>
#include <string>

namespace mxfp4 {

class Problems;

/// Links that leave a directory: refused; refused by a message that names --follow-links; or followed.
enum class Links { stay, offer, follow };

/// The real path of `name` below `dir`. Empty and a problem if it is missing, no regular file, or a link out of the
/// directory. Links into the blobs/ of the same Hugging Face cache entry are always allowed.
std::string real_path(const std::string& dir, const std::string& name, Problems& problems, Links links = Links::stay);

/// Where a path leads to; empty if that is nowhere, or cannot be reached.
std::filesystem::path resolve(const std::filesystem::path& path);

/// Whether a file that a name below `dir` leads to may be read.
bool may_follow(const std::filesystem::path& resolved, const std::filesystem::path& dir, Links links);

/// A small file below `dir`, read by real_path() and open_text(): every text of a checkpoint or an output is read so.
/// Empty, and the reason a problem, if real_path() refuses it; otherwise as read_text().
std::string small_text(const std::string& dir, const std::string& name, int64_t limit, Problems& problems,
                       Links links = Links::stay);

}  // namespace mxfp4
