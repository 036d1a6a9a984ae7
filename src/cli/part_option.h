// convert --part I/N, or what the scheduler that started this process says.
#pragma once

#include <functional>
#include <string>

#include "src/io/parts.h"

namespace mxfp4::cli {

/// A variable of the environment; null where there is none.
using GetVariable = std::function<const char*(const char* name)>;

/// "I/N" with 0 <= I < N, or "auto": the environment's. Throws Error{usage}.
PartNumber read_part(const std::string& text, const GetVariable& get);

}  // namespace mxfp4::cli
