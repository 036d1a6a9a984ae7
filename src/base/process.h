// Descriptors, limits and signals as the caller left them, made usable.
#pragma once

namespace mxfp4 {

/// To be called before anything is opened. Closed descriptors 0 to 2 are opened on /dev/null, so that no file of ours
/// gets their numbers; a write to such a stdout still fails. The limit of open files is raised to what is permitted.
/// SIGPIPE and SIGXFSZ become errors of the write. Out of memory where nothing can be thrown ends the program at once
/// with the same message and exit code as elsewhere. json: the message is JSON.
void prepare_process(bool json);

/// Where MXFP4_PACK_PARENT names a process: SIGTERM for this one when the thread that started it ends, and at once
/// where that process is there no more. To be called with signal handlers installed.
void end_with_parent();

/// Writes the message of that, without allocating memory.
void say_out_of_memory(bool json);

/// The most files that this process may have open.
int open_file_limit();

}  // namespace mxfp4
