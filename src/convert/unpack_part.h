// unpack --part: writes some of the checkpoint's shards, and merges all parts.
#pragma once

#include "src/convert/merge.h"
#include "src/convert/unpack.h"

namespace mxfp4 {

/// Carries out options.part. Prints a line, and returns what --json prints.
Json unpack_part(const UnpackOptions& options, const PackedCheckpoint& packed, const PackedSet& set);

/// Whether a part's command comes from unpack.
bool is_of_unpack(const Json& command);

/// Does what merge() does, for the parts of an unpack. If there are no parts, checks DEST against options.source.
Json merge_unpacked(const MergeOptions& options, const Place& place, const std::vector<PartFolder>& found);

}  // namespace mxfp4
