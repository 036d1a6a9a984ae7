// Files without a known size: pipes, standard input, the kernel's files.
#pragma once

#include <string>
#include <vector>

#include "src/base/file.h"

namespace mxfp4 {

/// Opens a file or pipe, and waits for a pipe's writer; "-" is standard input. name: the name in messages.
Fd open_stream(const std::string& path, std::string name);
/// All bytes up to the end of the stream. A failed read throws; more than `limit` bytes are an error.
std::string read_to_end(const Fd& fd, int64_t limit);
/// The lines of a file of the kernel, such as /proc/cpuinfo; none unless the whole file can be read.
std::vector<std::string> kernel_lines(const std::string& path);

}  // namespace mxfp4
