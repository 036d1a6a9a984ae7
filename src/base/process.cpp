#include "src/base/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <new>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/number.h"

namespace mxfp4 {

namespace {

bool as_json = false;
std::terminate_handler usual_end = nullptr;
std::atomic<bool> memory_ran_out = false;

[[noreturn]] void on_out_of_memory() {
  memory_ran_out = true;
  throw std::bad_alloc();
}

void on_terminate() {
  if (!memory_ran_out) usual_end();
  say_out_of_memory(as_json);
  ::_exit(2);
}

}  // namespace

void say_out_of_memory(bool json) {
  const char* const object = "{\"error\":{\"kind\":\"io\",\"lines\":[\"out of memory\"]}}\n";
  write_all(json ? 1 : 2, json ? object : "mxfp4-pack: error: out of memory\n");
}

void prepare_process(bool json) {
  as_json = json;
  std::set_new_handler(on_out_of_memory);
  usual_end = std::set_terminate(on_terminate);
  // Closed descriptors 0 to 2 are opened so that no file of the run gets their numbers. They are opened in the wrong
  // direction, so that a read or write still fails.
  int fd;
  do fd = ::open("/dev/null", ::fcntl(0, F_GETFD) < 0 ? O_WRONLY : O_RDONLY);
  while (fd >= 0 && fd <= 2);
  if (fd > 2) ::close(fd);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

bool is_running(pid_t process) {
  if (::kill(process, 0) != 0 && errno == ESRCH) return false;
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);  // "PID (NAME) STATE ..", and NAME may have any character
  const size_t name_end = text.rfind(") ");
  return name_end == text.npos || (text[name_end + 2] != 'Z' && text[name_end + 2] != 'X');
}

void end_with_parent() {
  const char* const name = "MXFP4_PACK_PARENT";
  const char* const value = std::getenv(name);
  if (!value || !*value) return;
  const int64_t number = whole_number(value);
  if (number <= 0 || number > INT_MAX) fail(ErrorKind::usage, "{}: '{}' is no process", name, value);
  const auto parent = pid_t(number);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const bool is_gone = ::getppid() != parent && !is_running(parent);
  if (is_gone) std::raise(SIGTERM);  // the parent ended before prctl()
}

int open_file_limit() {
  struct rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 256;
  return int(std::min<rlim_t>(files.rlim_cur, INT_MAX));
}

std::string environment_text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace mxfp4
