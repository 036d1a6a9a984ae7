// Preloaded into the program: writes every call that changes a file or a folder to a log, with its data. Calls are
// caught in the kernel (seccomp), whoever makes them. A call ends the program with exit code 99 if it is neither known
// to be harmless nor modelled here, or if it changes files outside POWER_ROOT.
//   POWER_LOG   file to append to: "CALL NUMBER NUMBER PATH PATH2 BYTES\n" separated by tabs, then BYTES of data
//   POWER_ROOT  absolute path of the folder that is recorded
//   POWER_KILL  n: SIGKILL after the n-th recorded call; 0: never
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "trap.h"

namespace {

using Path = char[PATH_MAX];
int log_fd = -1;
Path root;
long kill_after = 0;
long recorded = 0;
std::atomic_flag busy;

void path_of_fd(int fd, Path& to) {
  char link[64];
  snprintf(link, sizeof link, fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", fd);
  const long n = raw(SYS_readlink, link, to, sizeof(Path) - 1);
  to[n > 0 ? n : 0] = 0;
}

/// An absolute path; all that is asked for lies below root and holds no links.
void resolve(int dir, const char* name, Path& to) {
  if (name[0] == '/') {
    snprintf(to, sizeof(Path), "%s", name);
    return;
  }
  path_of_fd(dir, to);
  const size_t used = strlen(to);
  snprintf(to + used, sizeof(Path) - used, "/%s", name);
}

bool is_recorded(const char* path) {
  const size_t n = strlen(root);
  return strncmp(path, root, n) == 0 && (path[n] == 0 || path[n] == '/');
}

void put(const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const long n = raw(SYS_write, log_fd, p, bytes);
    if (n <= 0) give_up("cannot write the log", SYS_write, "");
    p += n, bytes -= size_t(n);
  }
}

struct Entry {
  const char* call;
  long a = 0, b = 0;
  const char *path = "", *path2 = "";
  const void* data = nullptr;
  size_t bytes = 0;
};

void record(const Entry& e) {
  char line[2 * PATH_MAX + 128];
  const int n = snprintf(line, sizeof line, "%s\t%ld\t%ld\t%s\t%s\t%zu\n", e.call, e.a, e.b, e.path, e.path2, e.bytes);
  put(line, size_t(n));
  put(e.data, e.bytes);
  if (++recorded == kill_after) raw(SYS_kill, raw(SYS_getpid), SIGKILL);
}

struct Call {
  long number;
  long arg[5];
  long go() const { return raw(number, arg[0], arg[1], arg[2], arg[3], arg[4]); }
  const char* text(int i) const { return reinterpret_cast<const char*>(arg[i]); }
};

long open_call(const Call& c, int dir, int at) {
  const long flags = c.arg[at + 1];
  if (!(flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE) return c.go();
  Path path;
  resolve(dir, c.text(at), path);
  struct stat s;
  const bool is_there = raw(SYS_lstat, path, &s) == 0;
  const long fd = c.go();
  if (fd < 0) return fd;
  if (!is_recorded(path) || (flags & O_TMPFILE) == O_TMPFILE || (is_there && !S_ISREG(s.st_mode)))
    give_up("not modelled", c.number, path);
  raw(SYS_fstat, fd, &s);
  if (!is_there) record({.call = "create", .a = long(s.st_mode & 07777), .path = path});
  if (is_there && flags & O_TRUNC) record({.call = "truncate", .path = path});
  return fd;
}

/// Calls on an open file or folder.
long fd_call(const Call& c) {
  Path path;
  struct stat s = {};
  path_of_fd(int(c.arg[0]), path);
  raw(SYS_fstat, c.arg[0], &s);
  const long result = c.go();
  const bool is_file = S_ISREG(s.st_mode) || S_ISDIR(s.st_mode);
  if (result < 0 || !is_file || c.arg[0] <= 2) return result;
  const bool is_sync = c.number == SYS_fsync || c.number == SYS_fdatasync;
  if (!is_recorded(path) && !is_sync) give_up("outside of the root", c.number, path);
  const auto data = reinterpret_cast<const void*>(c.arg[1]);
  const auto bytes = size_t(result);
  if (is_sync)
    record({.call = "sync", .path = path});
  else if (c.number == SYS_pwrite64)
    record({.call = "write", .a = c.arg[3], .path = path, .data = data, .bytes = bytes});
  else if (c.number == SYS_ftruncate)
    record({.call = "truncate", .a = c.arg[1], .path = path});
  else if (c.number == SYS_fchmod)
    record({.call = "mode", .a = c.arg[1], .path = path});
  else if (c.number == SYS_fallocate && c.arg[1] == 0)
    record({.call = "allocate", .a = c.arg[2] + c.arg[3], .path = path});
  else
    give_up("not modelled", c.number, path);
  return result;
}

/// Calls on one name.
long name_call(const Call& c, const char* call, int dir, int at, long number = 0) {
  Path path;
  resolve(dir, c.text(at), path);
  const long result = c.go();
  if (result < 0) return result;
  if (!is_recorded(path)) give_up("outside of the root", c.number, path);
  record({.call = call, .a = number, .path = path});
  return result;
}

struct Names {
  int from_dir, from, to_dir, to;
};

/// Calls on two names.
long names_call(const Call& c, const char* call, const Names& n) {
  Path from, to;
  resolve(n.from_dir, c.text(n.from), from);
  resolve(n.to_dir, c.text(n.to), to);
  const long result = c.go();
  if (result < 0) return result;
  if (!is_recorded(from) || !is_recorded(to)) give_up("outside of the root", c.number, to);
  record({.call = call, .path = from, .path2 = to});
  return result;
}

long made_mode(const Call& c, int at) {
  const long mask = raw(SYS_umask, 077);
  raw(SYS_umask, mask);
  return c.arg[at] & ~mask;
}

long carry_out(const Call& c) {
  const int dir = int(c.arg[0]);
  const Names two{AT_FDCWD, 0, AT_FDCWD, 1}, four{dir, 1, int(c.arg[2]), 3};
  switch (c.number) {
    case SYS_open:
      return open_call(c, AT_FDCWD, 0);
    case SYS_openat:
      return open_call(c, dir, 1);
    case SYS_write:
    case SYS_pwrite64:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_ftruncate:
    case SYS_fchmod:
    case SYS_fallocate:
      return fd_call(c);
    case SYS_mkdir:
      return name_call(c, "mkdir", AT_FDCWD, 0, made_mode(c, 1));
    case SYS_mkdirat:
      return name_call(c, "mkdir", dir, 1, made_mode(c, 2));
    case SYS_rmdir:
      return name_call(c, "remove", AT_FDCWD, 0);
    case SYS_unlink:
      return name_call(c, "remove", AT_FDCWD, 0);
    case SYS_unlinkat:
      return name_call(c, "remove", dir, 1);
    case SYS_chmod:
      return name_call(c, "mode", AT_FDCWD, 0, c.arg[1]);
    case SYS_fchmodat:
      return name_call(c, "mode", dir, 1, c.arg[2]);
    case SYS_link:
      return names_call(c, "link", two);
    case SYS_linkat:
      return names_call(c, "link", four);
    case SYS_rename:
      return names_call(c, "move", two);
    case SYS_renameat:
      return names_call(c, "move", four);
    case SYS_renameat2:
      return names_call(c, c.arg[4] & RENAME_EXCHANGE ? "swap" : "move", four);
    case SYS_utimensat:  // nothing asks for times after a loss of power
      return c.go();
    default:
      give_up("not modelled", c.number, "");
  }
}

void on_call(int, siginfo_t*, void* context) {
  const int before = errno;
  auto& r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const Call c{long(r[REG_RAX]), {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8]}};
  while (busy.test_and_set(std::memory_order_acquire)) raw(SYS_sched_yield);
  r[REG_RAX] = carry_out(c);
  busy.clear(std::memory_order_release);
  errno = before;
}

__attribute__((constructor)) void begin() {
  const char *log = getenv("POWER_LOG"), *below = getenv("POWER_ROOT"), *count = getenv("POWER_KILL");
  if (!log || !below) return;
  snprintf(root, sizeof root, "%s", below);
  kill_after = count ? atol(count) : 0;
  const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900);
  close(fd);
  if (log_fd < 0) give_up("cannot write the log", errno, log);
  trap_calls(on_call);
}

}  // namespace
