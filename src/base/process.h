// Descriptors, limits and signals as the caller left them, made usable.
#pragma once

#include <sys/types.h>

#include <string>

namespace mxfp4 {

/// Call before anything is opened. Closed descriptors 0 to 2 are opened on /dev/null, so that no other file gets their
/// numbers; a write to such a stdout still fails. The limit of open files is raised to the permitted maximum. SIGPIPE
/// and SIGXFSZ become errors of the write. If memory runs out and no exception can be thrown, the program ends at once
/// with the usual message and exit code. json: the message is JSON.
void prepare_process(bool json);

/// If MXFP4_PACK_PARENT names a process, this process gets SIGTERM when the thread that started it ends. It gets
/// SIGTERM at once if the named process has ended already. Call after signal handlers are installed.
void end_with_parent();

/// Whether a process runs. One that has ended, and whose parent has not asked for its exit code, does not run.
bool is_running(pid_t process);

/// Writes the message for a lack of memory, without allocating memory.
void say_out_of_memory(bool json);

/// The number of files that this process may have open.
int open_file_limit();

/// An environment variable; empty if it is not set.
std::string environment_text(const char* name);

}  // namespace mxfp4
