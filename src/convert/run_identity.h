// Identifies a run by checksums of its options and its source. A run is continued only if both are equal.
#pragma once

#include "src/convert/convert.h"

namespace mxfp4 {

struct Input;

/// Everything that affects a run's bytes: the plan with its options, and the state of the source's files.
OpenOptions open_options_of(const Plan& plan, const ConvertOptions& options, const Input& in);

/// The same for a part. Other nodes see other inodes and ctimes, so the source is identified by checksums of its
/// headers and small files, and by sizes and times of its shards. If a set is added to OUT, the checksum of OUT's
/// manifest is included. All parts must agree on replacing OUT, adding to it, or neither. `run` is left empty.
JournalHead part_head_of(const Plan& plan, const ConvertOptions& options, const Input& in);

}  // namespace mxfp4
