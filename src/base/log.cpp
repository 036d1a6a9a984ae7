#include "src/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "src/base/capture.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/terminal.h"

namespace mxfp4 {

namespace {

constexpr const char* clear_line = "\r\x1b[K";

std::atomic<Verbosity> current = Verbosity::normal;  // callers of the library may set it from several threads
std::atomic<int> output_error = 0;                   // errno of the first write to stdout that failed
std::mutex message_mutex;
bool progress_is_shown = false;
thread_local std::string* captured = nullptr;

/// A progress line, or a message in the place of one.
void write_message(const std::string& text, bool is_progress = false) {
  const std::lock_guard lock(message_mutex);
  if (progress_is_shown) write_all(2, clear_line);
  write_all(2, text);
  progress_is_shown = is_progress;
}

/// The message in lines that fit the terminal. A command after "with: " gets a line of its own, unbroken, so that it
/// can be copied.
std::string laid_out(const std::string& message) {
  const int columns = terminal_width(2);
  if (columns == 0 || columns_of(message) <= size_t(columns)) return message;
  constexpr std::string_view before = "with: ";
  const size_t command = message.find(before);
  if (command == message.npos) return fitted(message, 2, 2);
  return fitted(message.substr(0, command + before.size()), 2, 2) + "\n  " + message.substr(command + before.size());
}

/// "mxfp4-pack: error: ..".
void say(const char* kind, Tone tone, std::string_view text) {
  const bool is_note = std::string_view(kind) == "note";
  const std::string what = is_note ? "" : toned(tone, std::string(kind) + ":", 2) + " ";
  write_message(laid_out(fmt::format("mxfp4-pack: {}{}", what, printable(text))) + "\n");
}

}  // namespace

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    text.remove_prefix(size_t(put));
  }
}

void set_verbosity(Verbosity v) { current = v; }
Verbosity verbosity() { return current; }

void write_output(std::string_view text) {
  if (captured) {
    captured->append(text);
    return;
  }
  int expected = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    output_error.compare_exchange_strong(expected, errno);
}

CapturedOutput::CapturedOutput() : outer_(std::exchange(captured, &text_)) {}
CapturedOutput::~CapturedOutput() { captured = outer_; }

bool flush_output() {
  int expected = 0;
  if (std::fflush(stdout) != 0) output_error.compare_exchange_strong(expected, errno);
  if (output_error) complain(fmt::format("cannot write to standard output: {}", std::strerror(output_error)));
  return output_error == 0;
}

void complain(const std::string& text) { say("error", Tone::bad, text); }
void warn(const std::string& text) {
  if (current != Verbosity::quiet) say("warning", Tone::caution, text);
}
void note(const std::string& text) {
  if (current != Verbosity::quiet) say("note", Tone::heading, text);
}
void note_detail(const std::string& text) {
  if (current == Verbosity::verbose) note(text);
}

void show_on_terminal(const std::string& line) { write_message(line, !line.empty()); }

std::string human_bytes(int64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= (unit == 0 ? 1000 : 999.5) && unit < 4) {  // three digits, rounded
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, units[unit]);
}

std::string human_rate(int64_t bytes, double seconds) {
  return human_bytes(int64_t(double(bytes) / std::max(seconds, 1e-3))) + "/s";
}

std::string counted(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string human_seconds(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto s = int64_t(seconds + 0.5);
  if (s < 120) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02} h", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace mxfp4
