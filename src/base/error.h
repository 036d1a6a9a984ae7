// Errors: one exception type, thrown where the fact is known and caught once, in main.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

/// Why something could not be done; the `kind` of a JSON error.
enum class ErrorKind { usage, input, io, device, interrupted };
const char* name_of(ErrorKind kind);

/// One line per problem, each complete and printable: "FILE: TENSOR: what is, what was expected".
struct Error : std::runtime_error {
  Error(ErrorKind kind, std::vector<std::string> lines);
  Error(ErrorKind kind, std::string line) : Error(kind, std::vector<std::string>{std::move(line)}) {}
  ErrorKind kind;
  std::vector<std::string> lines;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// The exception that is being handled, as an Error. std::bad_alloc and unknown types are thrown again.
Error caught();

/// An I/O error with the file, what was tried and the system's reason (errno).
[[noreturn]] void fail_errno(std::string_view file, std::string_view action, int error);

/// Text as it may be shown: control characters, terminal escapes, characters that turn the direction of writing or that
/// nobody sees, and bytes that are no UTF-8 become \xNN. Whatever goes through Error, Problems, warn() and note() is
/// made printable there.
std::string printable(std::string_view text);
bool is_printable(std::string_view text);
/// A word quoted for a shell, and printable.
std::string shell_word(const std::string& text);
/// JSON that was made of UTF-8, with the same characters as \uNNNN.
std::string printable_json(std::string_view json);

/// Lines in the order in which they came. Of each kind the first hundred are kept and the others counted: a
/// checkpoint may lack a million files.
class KeptLines {
 public:
  /// Counts a line; false where it is not to be kept.
  bool count(std::string_view kind);
  /// Keeps the line that was counted last.
  void keep(std::string line);
  int64_t count() const { return count_; }
  /// With "... and N more of the same kind" behind the last that is kept of a kind.
  std::vector<std::string> list() const;

 private:
  struct Kind {
    int64_t count = 0, kept = 0;
    size_t end = 0;  // behind the last line that is kept
  };
  int64_t count_ = 0;
  std::vector<std::string> lines_;
  std::map<std::string_view, Kind> kinds_;
  std::string_view last_;
};

/// Problems found while reading and planning: collected, so that 36 wrong tensors give 36 lines and one exit.
class Problems {
 public:
  /// `where`: "FILE" or "FILE: TENSOR". Lines of one format are of one kind.
  template <class... Args>
  void error(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
    if (errors_.count(kind_of(format))) errors_.keep(line(where, fmt::format(format, std::forward<Args>(args)...)));
  }
  template <class... Args>
  void warn(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
    if (warnings_.count(kind_of(format))) warnings_.keep(line(where, fmt::format(format, std::forward<Args>(args)...)));
  }
  /// Every line of an error that was thrown where others could still be found.
  void add(const Error& error);

  std::vector<std::string> errors() const { return errors_.list(); }
  std::vector<std::string> warnings() const { return warnings_.list(); }
  int64_t count() const { return errors_.count(); }
  bool any() const { return count() > 0; }
  /// Throws Error{input} with every line, if there is one.
  void throw_if_any() const;

 private:
  static std::string_view kind_of(fmt::string_view format) { return {format.data(), format.size()}; }
  static std::string line(std::string_view where, const std::string& text);
  KeptLines errors_, warnings_;
};

/// "FILE: TENSOR".
std::string where(std::string_view file, std::string_view tensor);

}  // namespace mxfp4
