// SHA-256, and the name of a list of such hashes.
#pragma once

#include <string>
#include <string_view>

namespace mxfp4 {

inline constexpr const char* sums_name = "SHA256SUMS";

/// 64 hexadecimal digits.
std::string sha256_of(std::string_view bytes);

}  // namespace mxfp4
