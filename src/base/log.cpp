#include "src/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

constexpr const char* clear_line = "\r\x1b[K";

Verbosity current = Verbosity::normal;
std::atomic<int> output_error = 0;  // errno of the first write to stdout that failed
std::mutex message_mutex;
bool progress_is_shown = false;

bool on_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(2) && !(term && std::string(term) == "dumb");
}

/// A progress line, or a message in the place of one.
void write_message(const std::string& text, bool is_progress) {
  const std::lock_guard lock(message_mutex);
  if (progress_is_shown) write_all(2, clear_line);
  write_all(2, text);
  progress_is_shown = is_progress;
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
  int expected = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    output_error.compare_exchange_strong(expected, errno);
}

bool flush_output() {
  int expected = 0;
  if (std::fflush(stdout) != 0) output_error.compare_exchange_strong(expected, errno);
  if (output_error) complain(fmt::format("cannot write to standard output: {}", std::strerror(output_error)));
  return output_error == 0;
}

void complain(const std::string& text) {
  write_message(fmt::format("mxfp4-pack: error: {}\n", printable(text)), false);
}
void warn(const std::string& text) {
  if (current != Verbosity::quiet) write_message(fmt::format("mxfp4-pack: warning: {}\n", printable(text)), false);
}
void note(const std::string& text) {
  if (current != Verbosity::quiet) write_message(fmt::format("mxfp4-pack: {}\n", printable(text)), false);
}

std::string human_bytes(int64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1000 && unit < 4) value /= 1000, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, units[unit]);
}

Progress::Progress(std::string action, int64_t total)
    : action_(std::move(action)), total_(total), shown_(current != Verbosity::quiet && on_terminal()) {
  add(0);
}

Progress::~Progress() {
  if (!shown_) return;
  const std::lock_guard lock(message_mutex);
  if (progress_is_shown) write_all(2, clear_line);
  progress_is_shown = false;
}

void Progress::add(int64_t bytes) {
  done_ += bytes;
  if (!shown_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const auto now = Clock::now();
  if (!lock || now < next_) return;
  next_ = now + std::chrono::milliseconds(160);
  show(now);
}

void Progress::show(Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? double(done_) / seconds : 0;
  const double left = rate > 0 ? double(total_ - done_) / rate : 0;
  write_message(
      fmt::format("{} {} of {} ({:.0f} %), {:.2f} GB/s, {:.0f} s left", action_, human_bytes(done_),
                  human_bytes(total_), total_ ? 100.0 * double(done_) / double(total_) : 100.0, rate / 1e9, left),
      true);
}

}  // namespace mxfp4
