#include "src/inspect/diff_lines.h"

#include <cctype>
#include <map>

#include "src/base/log.h"
#include "src/base/terminal.h"

namespace mxfp4 {

namespace {

/// Every number as #.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit || !out.ends_with('#')) out += digit ? '#' : c;
  }
  return out;
}

/// The tensor, and the likely cause or, where none is named, all that is said, without numbers.
std::string kind_of(const std::string& line) {
  const size_t name = std::min(line.find(": "), line.size()), cause = line.rfind("; ");
  return without_numbers(line.substr(0, name) + line.substr(cause == line.npos || cause < name ? name : cause));
}

}  // namespace

void print_differences(const std::vector<std::string>& lines) {
  std::map<std::string, std::vector<const std::string*>> kinds;
  if (verbosity() != Verbosity::verbose)
    for (const std::string& line : lines) kinds[kind_of(line)].push_back(&line);
  for (const std::string& line : lines) {
    const auto found = kinds.find(kind_of(line));
    if (found != kinds.end() && found->second.front() != &line) continue;
    print_out("{}\n", fitted(line));
    if (found == kinds.end() || found->second.size() == 1) continue;
    const std::string& last = *found->second.back();
    const std::string name = last.substr(0, last.find(": "));
    print_out("  {}\n", fitted(fmt::format("the same in {} more, to {}", found->second.size() - 1, name), 4));
  }
}

}  // namespace mxfp4
