// What goes to the terminal: messages and progress on stderr; stdout carries only what was asked for.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

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
/// To a descriptor, without memory; what cannot be written is lost: nobody is there to be told.
void write_all(int fd, std::string_view text);
/// False where anything that was printed did not reach stdout; a line on stderr says why.
bool flush_output();

/// "mxfp4-pack: error: ..." on stderr. A stderr that is closed or full changes nothing, here and below.
void complain(const std::string& text);
/// "mxfp4-pack: warning: ..." on stderr, unless quiet.
void warn(const std::string& text);
/// "mxfp4-pack: ..." on stderr, unless quiet.
void note(const std::string& text);

/// "1.23 GB", "456 B": decimal units.
std::string human_bytes(int64_t bytes);

/// A line on stderr with bytes done, per cent, GB/s and time left; on a terminal only, at most six times a second.
class Progress {
 public:
  Progress(std::string action, int64_t total_bytes);
  ~Progress();
  /// From any thread.
  void add(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void show(Clock::time_point now);

  std::string action_;
  int64_t total_;
  bool shown_;
  std::atomic<int64_t> done_ = 0;
  std::mutex mutex_;  // of next_
  Clock::time_point start_ = Clock::now(), next_ = start_;
};

}  // namespace mxfp4
