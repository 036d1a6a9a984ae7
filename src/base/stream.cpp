#include "src/base/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_kernel_bytes = int64_t(64) << 20;

}  // namespace

Fd open_stream(const std::string& path, std::string name) {
  int fd;
  do fd = path == "-" ? ::fcntl(0, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) fail_errno(name, "cannot open", errno);
  return {fd, std::move(name)};
}

std::string read_to_end(const Fd& fd, int64_t limit) {
  std::string text, block(size_t(1) << 16, '\0');
  for (;;) {
    const ssize_t got = ::read(fd.get(), block.data(), block.size());
    const int error = got < 0 ? errno : 0;
    pollfd more = {fd.get(), POLLIN, 0};
    if (error == EAGAIN) ::poll(&more, 1, -1);  // another reader of the pipe has set O_NONBLOCK
    if (error == EAGAIN || error == EINTR) continue;
    if (error != 0) fail_errno(fd.name(), "cannot read", error);
    if (got == 0) return text;
    text.append(block, 0, size_t(got));
    if (int64_t(text.size()) > limit) fail(ErrorKind::input, "{}: more than {} bytes", fd.name(), limit);
  }
}

std::vector<std::string> kernel_lines(const std::string& path) {
  std::vector<std::string> lines;
  try {
    std::istringstream text(read_to_end(open_read(path), max_kernel_bytes));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
  } catch (const Error&) {
    return {};
  }
  return lines;
}

}  // namespace mxfp4
