// Tables that fit the terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

/// Rows with their cells in columns; the first may be of headings. sides: the alignment of each column, '<' or '>'. If
/// the terminal on stdout is too narrow, a row continues on further, indented lines; otherwise it is one line.
std::vector<std::string> table(const std::vector<std::vector<std::string>>& rows, std::string_view sides);

}  // namespace mxfp4
