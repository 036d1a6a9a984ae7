// SHA256SUMS, as `sha256sum -c` reads it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/base/file.h"

namespace mxfp4 {

inline constexpr const char* sums_name = "SHA256SUMS";

/// 64 hexadecimal digits.
std::string sha256_of(std::string_view bytes);

/// What opens a file, by the name that SHA256SUMS has for it.
using NamedFiles = std::map<std::string, std::function<Fd()>>;

/// A line for each of the files, by name; files are read whole, one thread each.
std::string sha256_sums(const NamedFiles& files, int threads);

/// Compares the text of a SHA256SUMS with the files, but for those `left_out`: every other file that differs, is
/// missing or is not listed is a problem.
void check_sha256_sums(const std::string& sums, NamedFiles files, const std::set<std::string>& left_out, int threads,
                       Problems& problems);

}  // namespace mxfp4
