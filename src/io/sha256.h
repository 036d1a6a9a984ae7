// SHA256SUMS, as `sha256sum -c` reads it.
#pragma once

#include <string>
#include <vector>

#include "src/base/error.h"

namespace mxfp4 {

inline constexpr const char* sums_name = "SHA256SUMS";

/// A line for each of the files below `dir` but SHA256SUMS, by name; files are read whole, one thread each.
std::string sha256_sums(const std::string& dir, std::vector<std::string> names, int threads);

/// Compares dir/SHA256SUMS with the files: what differs, and what it lacks or has besides, goes to `problems`.
void check_sha256_sums(const std::string& dir, const std::vector<std::string>& names, int threads, Problems& problems);

}  // namespace mxfp4
