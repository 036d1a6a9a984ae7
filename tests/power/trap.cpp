#include "trap.h"

#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

extern "C" char raw_end[];
asm(R"(
.text
.globl raw
.hidden raw
.type raw, @function
raw:
  mov %rdi, %rax
  mov %rsi, %rdi
  mov %rdx, %rsi
  mov %rcx, %rdx
  mov %r8, %r10
  mov %r9, %r8
  syscall
.globl raw_end
.hidden raw_end
raw_end:
  ret
)");

namespace {

constexpr int cachestat = 451;  // not in every header
constexpr int harmless[] = {SYS_read,
                            SYS_pread64,
                            SYS_preadv,
                            SYS_sync_file_range,  // begins early what may happen at any time
                            SYS_close,
                            SYS_fstat,
                            SYS_stat,
                            SYS_lstat,
                            SYS_newfstatat,
                            SYS_statx,
                            SYS_statfs,
                            SYS_fstatfs,
                            SYS_lseek,
                            SYS_access,
                            SYS_faccessat,
                            SYS_faccessat2,
                            SYS_readlink,
                            SYS_readlinkat,
                            SYS_getcwd,
                            SYS_getdents64,
                            SYS_fcntl,
                            SYS_flock,
                            SYS_fgetxattr,
                            SYS_getxattr,
                            SYS_fremovexattr,  // access lists, which are not modelled
                            SYS_fadvise64,
                            SYS_dup,
                            SYS_umask,
                            SYS_mprotect,
                            SYS_munmap,
                            SYS_mremap,
                            SYS_brk,
                            SYS_madvise,
                            SYS_mincore,
                            cachestat,
                            SYS_futex,
                            SYS_rseq,
                            SYS_set_robust_list,
                            SYS_set_tid_address,
                            SYS_clone,
                            SYS_clone3,
                            SYS_exit,
                            SYS_exit_group,
                            SYS_rt_sigaction,
                            SYS_rt_sigprocmask,
                            SYS_rt_sigreturn,
                            SYS_sigaltstack,
                            SYS_alarm,
                            SYS_tgkill,
                            SYS_getpid,
                            SYS_gettid,
                            SYS_getuid,
                            SYS_geteuid,
                            SYS_getgid,
                            SYS_getegid,
                            SYS_getrandom,
                            SYS_prlimit64,
                            SYS_getrlimit,
                            SYS_setrlimit,
                            SYS_sysinfo,
                            SYS_uname,
                            SYS_arch_prctl,
                            SYS_prctl,
                            SYS_sched_getaffinity,
                            SYS_sched_yield,
                            SYS_clock_gettime,
                            SYS_clock_nanosleep,
                            SYS_nanosleep,
                            SYS_gettimeofday,
                            SYS_getrusage};

class Filter {
 public:
  void load(size_t at) { add(BPF_LD | BPF_W | BPF_ABS, uint32_t(at)); }
  void mask(uint32_t bits) { add(BPF_ALU | BPF_AND | BPF_K, bits); }
  /// Leaves out the next `count` instructions unless, or if, the word that was loaded is `value`.
  void skip_unless(uint32_t value, uint8_t count) { list_.push_back(BPF_JUMP(equal, value, 0, count)); }
  void skip_if(uint32_t value, uint8_t count) { list_.push_back(BPF_JUMP(equal, value, count, 0)); }
  void allow() { add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW); }
  void trap() { add(BPF_RET | BPF_K, SECCOMP_RET_TRAP); }

  void install() {
    const sock_fprog program{uint16_t(list_.size()), list_.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      give_up("no seccomp", errno, "");
  }

 private:
  static constexpr uint16_t equal = BPF_JMP | BPF_JEQ | BPF_K;
  void add(int code, uint32_t value) { list_.push_back(BPF_STMT(uint16_t(code), value)); }

  std::vector<sock_filter> list_;
};

void install_filter() {
  constexpr size_t number = offsetof(seccomp_data, nr), from = offsetof(seccomp_data, instruction_pointer);
  const auto arg = [](size_t i) { return offsetof(seccomp_data, args) + i * 8; };
  const auto own = reinterpret_cast<uint64_t>(raw_end);
  Filter f;
  f.load(from);
  f.skip_unless(uint32_t(own), 3);
  f.load(from + 4);
  f.skip_unless(uint32_t(own >> 32), 1);
  f.allow();
  f.load(number);
  for (const int call : harmless) {
    f.skip_unless(uint32_t(call), 1);
    f.allow();
  }
  f.skip_unless(SYS_ioctl, 4);  // but what shares extents
  f.load(arg(1));
  f.skip_if(uint32_t(FICLONE), 1);
  f.allow();
  f.load(number);
  f.skip_unless(SYS_mmap, 7);  // but stores into a file
  f.load(arg(3));
  f.mask(MAP_SHARED | MAP_ANONYMOUS);
  f.skip_unless(MAP_SHARED, 3);
  f.load(arg(2));
  f.mask(PROT_WRITE);
  f.skip_if(PROT_WRITE, 1);
  f.allow();
  f.trap();
  f.install();
}

}  // namespace

[[noreturn]] void give_up(const char* what, long number, const char* path) {
  char text[PATH_MAX + 128];
  const int bytes = snprintf(text, sizeof text, "power: %s: call %ld %s\n", what, number, path);
  raw(SYS_write, 2, text, bytes);
  raw(SYS_exit_group, 99);
  __builtin_unreachable();
}

void trap_calls(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGSYS, &action, nullptr);
  install_filter();
}
