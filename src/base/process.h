// What the program's caller has left it with, made usable.
#pragma once

namespace mxfp4 {

/// Before anything is opened. Descriptors 0 to 2 that are closed become /dev/null, so that no file of ours gets the
/// number of one; a write to such a stdout still fails. As many files as permitted may be open. A pipe that nobody
/// reads, and a file beyond the size limit, are errors of the write and not signals that end the program. Memory that
/// runs out where nothing can be thrown ends it as it does elsewhere, but at once. json: how that is said.
void prepare_process(bool json);

/// The last message, made without memory.
void say_out_of_memory(bool json);

/// How many files this process may have open.
int open_file_limit();

}  // namespace mxfp4
