// unpack --part: whole shards of the checkpoint, and what merge makes of all parts.
#pragma once

#include "src/convert/merge.h"
#include "src/convert/unpack.h"

namespace mxfp4 {

/// Carries out options.part. Says what it did, and returns what --json prints.
Json unpack_part(const UnpackOptions& options, const PackedCheckpoint& packed, const PackedSet& set);

/// Whether a part's command is that of an unpack.
bool is_of_unpack(const Json& command);

/// As merge(), for the parts of an unpack, or, where there are none, of options.source.
Json merge_unpacked(const MergeOptions& options, const Place& place, const std::vector<PartFolder>& found);

}  // namespace mxfp4
