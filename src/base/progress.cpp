#include "src/base/progress.h"

#include <cstdlib>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/terminal.h"

namespace mxfp4 {

namespace {

double seconds_between(bool on_terminal) {
  if (const auto seconds = progress_seconds()) return *seconds;
  return on_terminal ? 0.16 : 30;
}

std::string clock_time(double seconds) {
  const auto s = int64_t(seconds + 0.5);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace

std::optional<double> progress_seconds() {
  const char* value = std::getenv("MXFP4_PACK_PROGRESS");
  if (!value || !*value) return {};
  char* end = nullptr;
  const double seconds = std::strtod(value, &end);
  if (*end || !(seconds > 0 && seconds <= 86400))
    fail(ErrorKind::usage, "MXFP4_PACK_PROGRESS: '{}' is no number of seconds above 0 and up to 86400", value);
  return seconds;
}

Progress::Progress(std::string action, int64_t total, std::string unit)
    : action_(std::move(action)), unit_(std::move(unit)), total_(total), shown_(verbosity() != Verbosity::quiet) {
  const bool at_once = is_terminal(2);
  pause_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_between(at_once)));
  next_ = at_once ? start_ : start_ + pause_;
  add(0);
}

Progress::~Progress() {
  if (shown_ && is_terminal(2)) show_on_terminal("");
}

void Progress::add(int64_t done) {
  done_ += done;
  if (!shown_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const auto now = Clock::now();
  if (!lock || now < next_) return;
  next_ = now + pause_;
  show();
}

void Progress::show() {
  if (is_terminal(2))
    show_on_terminal(line(terminal_width(2)));
  else
    note(line(0));
}

double Progress::rate() const { return seconds() > 0 ? double(done_) / seconds() : 0; }
double Progress::left() const { return rate() > 0 ? double(total_ - done_) / rate() : 0; }

std::string Progress::line(int width) const {
  const int percent = total_ ? int(100 * double(done_) / double(total_)) : 100;
  const std::string time = !unit_.empty() ? clock_time(seconds())
                           : done_        ? clock_time(left()) + " left"
                                          : "-:--:-- left";
  const std::string speed = unit_.empty() && done_ ? ", " + human_rate(done_, seconds()) : "";
  const std::string amount = unit_.empty() ? fmt::format("{} of {}", human_bytes(done_), human_bytes(total_))
                                           : fmt::format("{} of {} {}", done_.load(), total_, unit_);
  const std::string forms[] = {fmt::format("{} {} ({} %){}, {}", action_, amount, percent, speed, time),
                               fmt::format("{} {} %{}, {}", action_, percent, speed, time),
                               fmt::format("{} {} %, {}", action_, percent, time), fmt::format("{} %", percent)};
  for (const std::string& form : forms)
    if (width == 0 || int(form.size()) < width) return form;
  return {};
}

}  // namespace mxfp4
