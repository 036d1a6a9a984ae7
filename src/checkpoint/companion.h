// Companions: the files of a checkpoint beside its weights, of any size.
#pragma once

#include <string>

#include "src/base/long_text.h"

namespace mxfp4 {

struct Checkpoint;
class Problems;

/// Fills `companions` and `left_out` with every regular file beside the weights, at most two folders down. Links are
/// followed to files. A name that begins with a dot is left out, with all that is in a folder of such a name. A
/// checkpoint in a folder is left out whole, and a warning says so.
void find_companions(Checkpoint& checkpoint, Problems& problems);

/// Whether find_companions() would take a file, by its name and size.
bool may_be_companion(const std::string& name, int64_t bytes);

/// Passes the text of one companion in parts. Throws Error{input} at the end if the text does not have the known
/// checksum. The checkpoint must outlive the result.
TextSource companion_source(const Checkpoint& checkpoint, const std::string& name);
std::string companion_checksum(const Checkpoint& checkpoint, const std::string& name);

}  // namespace mxfp4
