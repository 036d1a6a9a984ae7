#include "src/base/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/base/terminal.h"

namespace mxfp4 {

namespace {

constexpr size_t indent = 4;  // of further lines

std::vector<size_t> widths_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  return widths;
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

/// The places of a table's columns on a terminal of `terminal` columns. 0: no terminal, so a row is one line.
struct Places {
  size_t gap = 2;
  std::vector<bool> breaks;  // of each column, whether it begins a line

  Places(const std::vector<size_t>& widths, size_t terminal) : breaks(widths.size()) {
    const size_t all = std::accumulate(widths.begin(), widths.end(), gap * (widths.size() - 1));
    if (terminal && all > terminal) gap = 1;
    size_t column = widths.front();
    for (size_t i = 1; i < widths.size(); ++i) {
      breaks[i] = terminal && column + gap + widths[i] > terminal;
      column = (breaks[i] ? indent : column + gap) + widths[i];
    }
  }
};

}  // namespace

std::vector<std::string> table(const std::vector<std::vector<std::string>>& rows, std::string_view sides) {
  if (rows.empty()) return {};
  const std::vector<size_t> widths = widths_of(rows);
  const Places places(widths, size_t(terminal_width(1)));
  std::vector<std::string> out;
  for (const auto& row : rows) {
    std::string text;
    for (size_t i = 0; i < row.size(); ++i) {
      if (places.breaks[i]) text = trimmed(text) + "\n";
      if (i) text.append(places.breaks[i] ? indent : places.gap, ' ');
      const std::string pad(widths[i] - columns_of(row[i]), ' ');
      text += sides[i] == '<' ? row[i] + pad : pad + row[i];
    }
    out.push_back(trimmed(text));
  }
  return out;
}

}  // namespace mxfp4
