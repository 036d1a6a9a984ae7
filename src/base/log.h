// What goes to the terminal: messages and progress on stderr; stdout carries only what was asked for.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace mxfp4 {

/// -q: errors only. -v: more than usual.
enum class Verbosity { quiet, normal, verbose };
void set_verbosity(Verbosity v);
Verbosity verbosity();

/// "mxfp4-pack: warning: ..." on stderr, unless quiet.
void warn(const std::string& text);
/// "mxfp4-pack: ..." on stderr, unless quiet.
void note(const std::string& text);

/// "1.23 GB", "456 B": decimal units.
std::string human_bytes(int64_t bytes);

/// A line on stderr with bytes done, per cent, GB/s and time left; on a terminal only, six times a second.
class Progress {
 public:
  Progress(std::string action, int64_t total_bytes);
  ~Progress();
  void add(int64_t bytes) { done_ += bytes; }

 private:
  void show();
  std::string action_;
  int64_t total_;
  std::atomic<int64_t> done_ = 0;
  std::atomic<bool> stop_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::thread thread_;
};

}  // namespace mxfp4
