// Preloaded into the program: its k-th allocation fails. Only what main does is counted: before it, and after it
// returns, there is nobody to say so.
//   MALLOC_CALL  k, counted from 1 over all threads; 0: only count
//   MALLOC_ALL   where set, all allocations from the k-th on fail
//   MALLOC_LOG   file to which the number of allocations is written at the end of main
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static std::atomic<bool> counting = false;
static std::atomic<long> calls = 0;
static long chosen = 0;
static bool all = false;

static bool fails() {
  if (!counting) return false;
  const long call = ++calls;
  if (chosen == 0 || call < chosen || (call > chosen && !all)) return false;
  errno = ENOMEM;
  return true;
}

void* malloc(size_t bytes) { return fails() ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return fails() ? nullptr : __libc_calloc(count, bytes); }
void* realloc(void* old, size_t bytes) { return fails() ? nullptr : __libc_realloc(old, bytes); }
void* memalign(size_t align, size_t bytes) { return fails() ? nullptr : __libc_memalign(align, bytes); }
void* aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
int posix_memalign(void** to, size_t align, size_t bytes) {
  void* const got = memalign(align, bytes);
  if (got) *to = got;
  return got ? 0 : ENOMEM;
}

using Main = int (*)(int, char**, char**);
static Main program;

static int counted_main(int argc, char** argv, char** env) {
  const char* call = getenv("MALLOC_CALL");
  const char* log = getenv("MALLOC_LOG");
  chosen = call ? atol(call) : 0;
  all = getenv("MALLOC_ALL") != nullptr;
  counting = true;
  const int code = program(argc, argv, env);
  counting = false;
  const int fd = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
  if (fd >= 0) dprintf(fd, "%ld\n", calls.load());
  return code;
}

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld)(), void* stack) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  program = main;
  const auto real = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(counted_main, argc, argv, init, fini, rtld, stack);
}

}  // extern "C"
