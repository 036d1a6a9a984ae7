// Identifies a run by checksums of its options and its source. OutputDir::take_over() compares them with those in the
// journal: a run is continued only if both are equal, and if its staging directory is "building" (io/stage.h).
#pragma once

#include "src/convert/convert.h"

namespace mxfp4 {

struct Input;

/// What must be the same: the recipe, the plan, the version of this program, the state of the shards, config and index,
/// and the names of the small files. Their contents are not in it, because they are copied last, and neither are the
/// source's place and how to run: threads, device, page cache.
OpenOptions open_options_of(const Plan& plan, const ConvertOptions& options, const Input& in);

/// The same for a part. Other nodes see other inodes and ctimes, so the source is identified by checksums of its
/// headers and small files, and by sizes and times of its shards. If a set is added to OUT, the checksum of OUT's
/// manifest is included. All parts must agree on replacing OUT, adding to it, or neither. `run` is left empty.
JournalHead part_head_of(const Plan& plan, const ConvertOptions& options, const Input& in);

}  // namespace mxfp4
