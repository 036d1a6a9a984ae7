// Output for the user: messages on stderr; stdout has only the requested output.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace mxfp4 {

/// -q: errors only. -v: more than usual.
enum class Verbosity { quiet, normal, verbose };
void set_verbosity(Verbosity v);
Verbosity verbosity();

/// Appends to stdout, as it is.
void write_output(std::string_view text);
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}
/// Writes to a descriptor without allocating memory. Ignores errors.
void write_all(int fd, std::string_view text);
/// Returns false, and prints a line to stderr, if any output did not reach stdout.
bool flush_output();

/// "mxfp4-pack: error: ..." on stderr. A stderr that is closed or full changes nothing, here and below.
void complain(const std::string& text);
/// "mxfp4-pack: warning: ..." on stderr, unless quiet.
void warn(const std::string& text);
/// "mxfp4-pack: ..." on stderr, unless quiet.
void note(const std::string& text);
/// "mxfp4-pack: ..." on stderr, with -v only: the action on each file or tensor, choices and their reasons, and times.
void note_detail(const std::string& text);

/// Shows a line on a terminal until the next message or the next such line replaces it. Empty: removes it.
void show_on_terminal(const std::string& line);

/// "1.23 GB", "456 B": decimal units.
std::string human_bytes(int64_t bytes);
/// "1.23 GB/s", "45 kB/s".
std::string human_rate(int64_t bytes, double seconds);
/// "0.4 s", "12 s", "3:07 min", "2:03:07 h".
std::string human_seconds(double seconds);
/// "1 file", "2 files".
std::string counted(int64_t count, std::string_view what);

}  // namespace mxfp4
