// Errors: one exception type, thrown where the fact is known and caught once, in main.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

/// Why something could not be done; the `kind` of a JSON error.
enum class Kind { usage, input, io, device, interrupted };
const char* name_of(Kind kind);

/// One line per problem, each complete and printable: "FILE: TENSOR: what is, what was expected".
struct Error : std::runtime_error {
  Error(Kind kind, std::vector<std::string> lines);
  Error(Kind kind, std::string line) : Error(kind, std::vector<std::string>{std::move(line)}) {}
  Kind kind;
  std::vector<std::string> lines;
};

template <class... Args>
[[noreturn]] void fail(Kind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// An I/O error with the file, what was tried and the system's reason (errno).
[[noreturn]] void fail_errno(std::string_view file, std::string_view action, int error);

/// Text as it may be shown: control characters, terminal escapes and bytes that are no UTF-8 become \xNN. Whatever goes
/// through Error, Problems, warn() and note() is made printable there.
std::string printable(std::string_view text);
bool is_printable(std::string_view text);

/// Problems found while reading and planning: collected, so that 36 wrong tensors give 36 lines and one exit.
class Problems {
 public:
  /// `where`: "FILE" or "FILE: TENSOR".
  template <class... Args>
  void error(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
    errors_.push_back(printable(fmt::format("{}: {}", where, fmt::format(format, std::forward<Args>(args)...))));
  }
  template <class... Args>
  void warn(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
    warnings_.push_back(printable(fmt::format("{}: {}", where, fmt::format(format, std::forward<Args>(args)...))));
  }
  /// Every line of an error that was thrown where others could still be found.
  void add(const Error& error) { errors_.insert(errors_.end(), error.lines.begin(), error.lines.end()); }
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool any() const { return !errors_.empty(); }
  /// Throws Error{input} with every line, if there is one.
  void throw_if_any() const;

 private:
  std::vector<std::string> errors_, warnings_;
};

/// "FILE: TENSOR".
std::string where(std::string_view file, std::string_view tensor);

}  // namespace mxfp4
