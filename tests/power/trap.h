// Has the kernel stop every system call that may change a file, whoever makes it, also those of libraries.
#pragma once

#include <csignal>

/// The only calls that go through: raw(number, a, b, c, d, e) returns a result or -errno.
extern "C" long raw(long number, ...);

/// From here on `handler` gets SIGSYS in the place of every call that is not known to be harmless.
void trap_calls(void (*handler)(int, siginfo_t*, void*));

[[noreturn]] void give_up(const char* what, long number, const char* path);
