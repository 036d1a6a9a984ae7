#include "src/inspect/diff_lines.h"

#include <cctype>
#include <map>

#include "src/base/log.h"
#include "src/base/terminal.h"

namespace mxfp4 {

namespace {

/// Replaces every number by #.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit || !out.ends_with('#')) out += digit ? '#' : c;
  }
  return out;
}

std::string kind_of(const Difference& d) { return without_numbers(d.name) + ": " + d.fact; }

}  // namespace

void print_differences(const std::vector<Difference>& differences) {
  std::map<std::string, std::vector<const Difference*>> kinds;
  if (verbosity() != Verbosity::verbose)
    for (const Difference& d : differences)
      if (!d.name.empty()) kinds[kind_of(d)].push_back(&d);
  for (const Difference& d : differences) {
    const auto found = kinds.find(kind_of(d));
    if (found != kinds.end() && found->second.front() != &d) continue;
    print_out("{}\n", fitted(d.line));
    if (found == kinds.end() || found->second.size() == 1) continue;
    const size_t more = found->second.size() - 1;
    print_out("  {}\n", fitted(fmt::format("the same in {} more, to {}", more, found->second.back()->name), 4));
  }
}

}  // namespace mxfp4
