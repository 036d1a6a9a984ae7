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

/// Opens a file by its name in SHA256SUMS.
using NamedFiles = std::map<std::string, std::function<Fd()>>;

/// Returns one line for each file, sorted by name. Each thread reads whole files.
std::string sha256_sums(const NamedFiles& files, int threads);

/// Compares the text of a SHA256SUMS with the files, except for those in `left_out`. A file that differs, is missing or
/// is not listed is a problem.
void check_sha256_sums(const std::string& sums, NamedFiles files, const std::set<std::string>& left_out, int threads,
                       Problems& problems);

}  // namespace mxfp4
