#include "src/base/signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"

namespace mxfp4 {

namespace {

// The data that a handler may read: all are lock-free, and the texts are set before the handlers are installed.
std::atomic<int> came = 0;
std::atomic<int> deferred = 0;
std::atomic<bool> has_file = false;
struct PlainName {
  int folder = -1;
  char name[NAME_MAX + 1];
};
PlainName file, folder_of_file;
struct Message {
  int fd = 2;
  char text[128];
};
Message interrupted, terminated, hung_up;

std::string text_of(int number) { return fmt::format("interrupted by signal {}", number); }

Message message_of(int number, bool json) {
  const Json object = {{"error", json_of(Error(ErrorKind::interrupted, text_of(number)))}};
  const std::string line = json ? one_line(object) : "mxfp4-pack: error: " + text_of(number);
  Message m{json ? 1 : 2, {}};
  std::strncpy(m.text, (line + "\n").c_str(), sizeof m.text - 1);
  return m;
}

[[noreturn]] void end_now(int number) {
  if (has_file) {
    ::unlinkat(file.folder, file.name, 0);
    ::unlinkat(folder_of_file.folder, folder_of_file.name, AT_REMOVEDIR);
  }
  const Message& m = number == SIGTERM ? terminated : number == SIGHUP ? hung_up : interrupted;
  [[maybe_unused]] const ssize_t put = ::write(m.fd, m.text, std::strlen(m.text));
  ::_exit(128 + number);
}

void on_signal(int number) {
  const bool is_first = came.exchange(number) == 0;
  if (deferred == 0 || !is_first) end_now(number);
  ::alarm(1);
}

void on_alarm(int) { end_now(came); }

bool is_ignored(int number) {
  struct sigaction now = {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

void install_signal_handlers(bool json) {
  interrupted = message_of(SIGINT, json);
  terminated = message_of(SIGTERM, json);
  hung_up = message_of(SIGHUP, json);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  for (const int number : {SIGINT, SIGHUP})
    if (!is_ignored(number)) sigaction(number, &action, nullptr);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
}

SignalsDeferred::SignalsDeferred() { ++deferred; }

SignalsDeferred::~SignalsDeferred() {
  --deferred;
  ::alarm(0);
}

void remove_at_signal(const NameAt& name, const NameAt& its_folder) {
  has_file = false;
  if (name.name.empty() || std::max(name.name.size(), its_folder.name.size()) > NAME_MAX) return;
  for (const auto& [to, from] : {std::pair(&file, &name), std::pair(&folder_of_file, &its_folder)}) {
    to->folder = from->folder;
    std::strcpy(to->name, from->name.c_str());
  }
  has_file = true;
}

int pending_signal() { return came; }

void throw_if_interrupted() {
  if (came == 0) return;
  ::alarm(0);  // the caller ends the program itself
  fail(ErrorKind::interrupted, "{}", text_of(came));
}

}  // namespace mxfp4
