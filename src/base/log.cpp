#include "src/base/log.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

Verbosity current = Verbosity::normal;

bool on_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(2) && !(term && std::string(term) == "dumb");
}

}  // namespace

void set_verbosity(Verbosity v) { current = v; }
Verbosity verbosity() { return current; }

void warn(const std::string& text) {
  if (current != Verbosity::quiet) fmt::print(stderr, "mxfp4-pack: warning: {}\n", printable(text));
}

void note(const std::string& text) {
  if (current != Verbosity::quiet) fmt::print(stderr, "mxfp4-pack: {}\n", printable(text));
}

std::string human_bytes(int64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1000 && unit < 4) value /= 1000, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, units[unit]);
}

Progress::Progress(std::string action, int64_t total) : action_(std::move(action)), total_(total) {
  if (current == Verbosity::quiet || !on_terminal()) return;
  thread_ = std::thread([this] {
    while (!stop_) {
      show();
      std::this_thread::sleep_for(std::chrono::milliseconds(160));
    }
  });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  stop_ = true;
  thread_.join();
  fmt::print(stderr, "\r\x1b[K");
}

void Progress::show() {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double rate = seconds > 0 ? double(done_) / seconds : 0;
  const double left = rate > 0 ? double(total_ - done_) / rate : 0;
  fmt::print(stderr, "\r\x1b[K{} {} of {} ({:.0f} %), {:.2f} GB/s, {:.0f} s left", action_, human_bytes(done_),
             human_bytes(total_), total_ ? 100.0 * double(done_) / double(total_) : 100.0, rate / 1e9, left);
}

}  // namespace mxfp4
