#include "src/base/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>

namespace mxfp4 {

void prepare_process() {
  int fd;
  do fd = ::open("/dev/null", O_RDONLY);
  while (fd >= 0 && fd <= 2);
  if (fd > 2) ::close(fd);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

int open_file_limit() {
  struct rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 256;
  return int(std::min<rlim_t>(files.rlim_cur, INT_MAX));
}

}  // namespace mxfp4
