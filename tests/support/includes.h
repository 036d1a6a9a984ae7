// The includes of source files, for the tests of permitted includes.
#pragma once

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "src/base/file.h"
#include "tests/support/testdata.h"

namespace mxfp4 {

inline std::filesystem::path source_root() { return std::filesystem::path(testdata()).parent_path(); }

/// The names in quotes that a file includes. `file` and the names are relative to the root.
inline std::vector<std::string> includes_of(const std::string& file) {
  const std::string text = read_text((source_root() / file).string(), 1 << 24);
  static const std::regex include("#include \"([^\"]+)\"");
  std::vector<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i) names.push_back((*i)[1]);
  return names;
}

/// Every C++ and CUDA file below a folder, relative to the root.
inline std::vector<std::string> sources_below(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_root() / folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh")
      names.push_back(entry.path().lexically_relative(source_root()).string());
  }
  return names;
}

}  // namespace mxfp4
