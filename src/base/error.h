// Errors: one exception type, thrown at the place of the problem and caught once, in main.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

/// Why something could not be done; the `kind` of a JSON error.
enum class ErrorKind { usage, input, io, device, interrupted };
const char* name_of(ErrorKind kind);

/// One line per problem, each complete and printable: "FILE: TENSOR: found value, expected value".
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

/// Throws an I/O error with the file, the failed action and the system's reason (errno).
[[noreturn]] void fail_errno(std::string_view file, std::string_view action, int error);

/// Printable text: control characters, terminal escapes, invisible characters, characters that change the direction of
/// writing, and bytes that are no UTF-8 become \xNN. Error, Problems, warn() and note() apply printable() to their
/// text.
std::string printable(std::string_view text);
bool is_printable(std::string_view text);
/// A word quoted for a shell, and printable.
std::string shell_word(const std::string& text);
/// JSON that was made of UTF-8, with the same characters as \uNNNN.
std::string printable_json(std::string_view json);

/// Lines in the order of their arrival. Lines that repeat over layers and experts become one line with a count. The
/// first hundred lines of each kind are kept and the others counted, because a checkpoint may lack a million files.
class KeptLines {
 public:
  /// `where`: "FILE", "FILE: TENSOR" or empty. Lines with one format string are of one kind.
  void add(std::string_view kind, std::string_view where, std::string_view text);
  int64_t count() const { return count_; }
  /// The kept lines, with "... and N more of the same kind" after the last one of a kind.
  std::vector<std::string> list() const;

 private:
  struct Line {
    std::string text, last;  // last: the name with the greatest numbers
    int64_t count = 1;
  };
  struct Kind {
    int64_t kept = 0, left_out = 0;
    size_t end = 0;  // behind the last line that is kept
  };
  int64_t count_ = 0;
  std::vector<Line> lines_;
  std::map<std::string, size_t> by_pattern_;
  std::map<std::string_view, Kind> kinds_;
};

/// Problems found while reading and planning: collected, so that 36 wrong tensors give 36 lines and one exit.
class Problems {
 public:
  /// `where`: "FILE" or "FILE: TENSOR". Lines with one format string are of one kind.
  template <class... Args>
  void error(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
    keep_place(where);
    errors_.add(kind_of(format), where, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warn(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
    warnings_.add(kind_of(format), where, fmt::format(format, std::forward<Args>(args)...));
  }
  /// Adds every line of a caught error, so that the search for problems can continue.
  void add(const Error& error);
  /// Adds the errors of `other`.
  void add(const Problems& other) {
    add(Error(ErrorKind::input, other.errors()));
    any_unread_ |= other.any_unread_;
  }
  /// A file that exists but cannot be read, so that nothing is known about its contents.
  void unread(std::string_view where, const std::string& why) {
    error(where, "{}", why);
    any_unread_ = true;
  }
  bool any_unread() const { return any_unread_; }

  std::vector<std::string> errors() const { return errors_.list(); }
  std::vector<std::string> warnings() const { return warnings_.list(); }
  int64_t count() const { return errors_.count(); }
  bool any() const { return count() > 0; }
  /// Whether an error is about this tensor or module, one within it, or one that it is in. Of 100,000 errors at most.
  bool is_about(std::string_view name) const;
  /// Throws Error{input} with every line, if there is one.
  void throw_if_any() const;

 private:
  static std::string_view kind_of(fmt::string_view format) { return {format.data(), format.size()}; }
  void keep_place(std::string_view where);

  KeptLines errors_, warnings_;
  bool any_unread_ = false;
  std::set<std::string, std::less<>> places_;  // tensors and modules
};

/// "FILE: TENSOR".
std::string where(std::string_view file, std::string_view tensor);

}  // namespace mxfp4
