// Preloaded into the program: its k-th call of what moves or names files fails.
//   INJECT_CALL   k, counted from 1 over all calls below; 0 or none: only count
//   INJECT_FAULT  ENOSPC, EIO, EDQUOT, EINTR, short: half of what a read or write was asked for, or KILL: the program is
//                 killed right before it
//   INJECT_LOG    file to which the number of calls and the call that failed are written at the end
// A failing close has closed the file. Only calls on files of the run (below INJECT_ROOT) are counted.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_int calls;
static int chosen = -1, fault, is_short, is_killed;
static char root[PATH_MAX], failed[256];
static const char* log_path;

__attribute__((constructor)) static void begin(void) {
  const char* k = getenv("INJECT_CALL");
  const char* name = getenv("INJECT_FAULT");
  const char* below = getenv("INJECT_ROOT");
  if (below) strncpy(root, below, sizeof root - 1);
  log_path = getenv("INJECT_LOG");
  if (!name) name = "EIO";
  is_short = !strcmp(name, "short");
  is_killed = !strcmp(name, "KILL");
  fault = !strcmp(name, "ENOSPC") ? ENOSPC : !strcmp(name, "EDQUOT") ? EDQUOT : !strcmp(name, "EINTR") ? EINTR : EIO;
  chosen = k ? atoi(k) : 0;
}

__attribute__((destructor)) static void end(void) {
  if (!log_path) return;
  char text[512];
  const int bytes = snprintf(text, sizeof text, "%d %s\n", atomic_load(&calls), failed);
  int (*real_open)(const char*, int, ...) = dlsym(RTLD_NEXT, "open");
  ssize_t (*real_write)(int, const void*, size_t) = dlsym(RTLD_NEXT, "write");
  const int fd = real_open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (real_write(fd, text, (size_t)bytes) != bytes) _exit(99);
}

static int is_ours(const char* path) { return chosen >= 0 && path && !strncmp(path, root, strlen(root)); }

static const char* path_of(int fd, char* to) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, to, PATH_MAX - 1);
  to[n > 0 ? n : 0] = 0;
  return to;
}

// 1 if this call must fail; errno is set.
static int hit(const char* call, const char* path) {
  if (!is_ours(path) || atomic_fetch_add(&calls, 1) + 1 != chosen) return 0;
  if (is_killed) raise(SIGKILL);
  snprintf(failed, sizeof failed, "%s %s", call, path + strlen(root));
  errno = fault;
  return 1;
}

static int hit_fd(const char* call, int fd) {
  char path[PATH_MAX];
  const int before = errno;
  const int result = hit(call, path_of(fd, path));
  if (!result) errno = before;
  return result;
}

#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, #name)

// A transfer of half, or a failure.
#define TRANSFER(name, fd, bytes, ...)                      \
  if (hit_fd(#name, fd)) {                                  \
    if (!is_short) return -1;                               \
    if (bytes > 1) bytes /= 2;                              \
  }                                                         \
  return real(__VA_ARGS__)

ssize_t read(int fd, void* to, size_t bytes) {
  REAL(ssize_t, read, int, void*, size_t);
  TRANSFER(read, fd, bytes, fd, to, bytes);
}
ssize_t write(int fd, const void* from, size_t bytes) {
  REAL(ssize_t, write, int, const void*, size_t);
  TRANSFER(write, fd, bytes, fd, from, bytes);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  REAL(ssize_t, pread, int, void*, size_t, off_t);
  TRANSFER(pread, fd, bytes, fd, to, bytes, at);
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  REAL(ssize_t, pwrite, int, const void*, size_t, off_t);
  TRANSFER(pwrite, fd, bytes, fd, from, bytes, at);
}
ssize_t preadv(int fd, const struct iovec* parts, int count, off_t at) {
  REAL(ssize_t, preadv, int, const struct iovec*, int, off_t);
  if (!hit_fd("preadv", fd)) return real(fd, parts, count, at);
  if (!is_short) return -1;
  struct iovec half = parts[0];
  if (half.iov_len > 1) half.iov_len /= 2;
  return real(fd, &half, 1, at);
}
int sync_file_range(int fd, off64_t at, off64_t bytes, unsigned flags) {
  REAL(int, sync_file_range, int, off64_t, off64_t, unsigned);
  return !is_short && hit_fd("sync_file_range", fd) ? -1 : real(fd, at, bytes, flags);
}
int fsync(int fd) {
  REAL(int, fsync, int);
  return !is_short && hit_fd("fsync", fd) ? -1 : real(fd);
}
int ftruncate(int fd, off_t bytes) {
  REAL(int, ftruncate, int, off_t);
  return !is_short && hit_fd("ftruncate", fd) ? -1 : real(fd, bytes);
}
int fallocate(int fd, int mode, off_t at, off_t bytes) {
  REAL(int, fallocate, int, int, off_t, off_t);
  return !is_short && hit_fd("fallocate", fd) ? -1 : real(fd, mode, at, bytes);
}
int flock(int fd, int operation) {
  REAL(int, flock, int, int);
  return !is_short && hit_fd("flock", fd) ? -1 : real(fd, operation);
}
int close(int fd) {
  REAL(int, close, int);
  if (is_short || !hit_fd("close", fd)) return real(fd);
  real(fd);
  errno = fault;
  return -1;
}
// The path that an *at call means.
static const char* path_at(int folder, const char* name, char* to) {
  if (name[0] == '/' || folder == AT_FDCWD) return name;
  path_of(folder, to);
  const size_t used = strlen(to);
  snprintf(to + used, PATH_MAX - used, "/%s", name);
  return to;
}
static int hit_at(const char* call, int folder, const char* name) {
  char path[PATH_MAX];
  const int before = errno;
  const int result = !is_short && hit(call, path_at(folder, name, path));
  if (!result) errno = before;
  return result;
}
int open(const char* path, int flags, ...) {
  REAL(int, open, const char*, int, ...);
  va_list more;
  va_start(more, flags);
  const int mode = flags & O_CREAT ? va_arg(more, int) : 0;
  va_end(more);
  return hit_at("open", AT_FDCWD, path) ? -1 : real(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  REAL(int, openat, int, const char*, int, ...);
  va_list more;
  va_start(more, flags);
  const int mode = flags & O_CREAT ? va_arg(more, int) : 0;
  va_end(more);
  return hit_at("openat", folder, path) ? -1 : real(folder, path, flags, mode);
}
int mkdirat(int folder, const char* path, mode_t mode) {
  REAL(int, mkdirat, int, const char*, mode_t);
  return hit_at("mkdirat", folder, path) ? -1 : real(folder, path, mode);
}
int fchmod(int fd, mode_t mode) {
  REAL(int, fchmod, int, mode_t);
  return !is_short && hit_fd("fchmod", fd) ? -1 : real(fd, mode);
}
int renameat(int from_dir, const char* from, int to_dir, const char* to) {
  REAL(int, renameat, int, const char*, int, const char*);
  return hit_at("renameat", to_dir, to) ? -1 : real(from_dir, from, to_dir, to);
}
int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  REAL(int, renameat2, int, const char*, int, const char*, unsigned);
  return hit_at("renameat2", to_dir, to) ? -1 : real(from_dir, from, to_dir, to, flags);
}
int linkat(int from_dir, const char* from, int to_dir, const char* to, int flags) {
  REAL(int, linkat, int, const char*, int, const char*, int);
  if (getenv("INJECT_NO_LINKS")) {  // as a file system without them
    errno = EPERM;
    return -1;
  }
  return hit_at("linkat", to_dir, to) ? -1 : real(from_dir, from, to_dir, to, flags);
}
int unlinkat(int folder, const char* path, int flags) {
  REAL(int, unlinkat, int, const char*, int);
  return hit_at("unlinkat", folder, path) ? -1 : real(folder, path, flags);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));
ssize_t pread64(int fd, void* to, size_t bytes, off64_t at) __attribute__((alias("pread")));
ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t at) __attribute__((alias("pwrite")));
ssize_t preadv64(int fd, const struct iovec* parts, int count, off64_t at) __attribute__((alias("preadv")));
int ftruncate64(int fd, off64_t bytes) __attribute__((alias("ftruncate")));
int fallocate64(int fd, int mode, off64_t at, off64_t bytes) __attribute__((alias("fallocate")));
