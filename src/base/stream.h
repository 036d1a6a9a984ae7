// Files whose size does not say where they end: pipes, standard input, the kernel's.
#pragma once

#include <string>
#include <vector>

#include "src/base/file.h"

namespace mxfp4 {

/// Opens what may be a pipe, and waits for its writer; "-" is standard input. name: how messages call it.
Fd open_stream(const std::string& path, std::string name);
/// All bytes up to the end of the stream. A failed read throws; more than `limit` bytes are an error.
std::string read_to_end(const Fd& fd, int64_t limit);
/// The lines of a file of the kernel, such as /proc/cpuinfo; none unless the whole file can be read.
std::vector<std::string> kernel_lines(const std::string& path);

}  // namespace mxfp4
