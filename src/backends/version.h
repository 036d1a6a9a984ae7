// Releases of engines and libraries, and ranges of them.
#pragma once

#include <string>
#include <string_view>

namespace mxfp4 {

/// Compares versions: returns a number below 0, 0 or above 0. Numbers are compared one by one, "0.6.18.post1" as
/// 0.6.18.1; a missing number is 0. Other suffixes ("rc1", "+cu130") are ignored.
int compare_versions(std::string_view a, std::string_view b);

/// Whether a version precedes the release of its numbers: "0.33.0rc1", "0.27.1.dev3".
bool is_prerelease(std::string_view version);

/// Whether a text begins as a release does: "0.33.0", "5.23", "0.33.0+cu130".
bool is_version(std::string_view text);

/// Releases from `first` to `last`; "": no end on that side.
struct Range {
  const char* first = "";
  const char* last = "";
  bool contains(std::string_view version) const;
};

/// No release.
inline constexpr Range no_release = {"1", "0"};
bool is_empty(const Range& range);

/// "0.26.0 to 0.28.0"; an open end is closed by that of `known`, since nothing newer was read. Empty for no release.
std::string describe(const Range& range, const Range& known);

}  // namespace mxfp4
