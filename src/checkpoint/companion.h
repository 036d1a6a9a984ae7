// Companions of any size.
#pragma once

#include <string>

#include "src/base/long_text.h"

namespace mxfp4 {

struct Checkpoint;

/// Passes one of the companions in parts. Throws Error{input} in the end where it does not have the checksum that is
/// known. The checkpoint must live as long.
TextSource companion_source(const Checkpoint& checkpoint, const std::string& name);
std::string companion_checksum(const Checkpoint& checkpoint, const std::string& name);

}  // namespace mxfp4
