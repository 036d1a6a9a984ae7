// --part I/N, or what the scheduler that started this process says.
#pragma once

#include <string>

#include "src/io/parts.h"

namespace mxfp4::cli {

/// "I/N" with 0 <= I < N, or "auto": what the environment says. Throws Error{usage}.
PartNumber read_part(const std::string& text);

}  // namespace mxfp4::cli
