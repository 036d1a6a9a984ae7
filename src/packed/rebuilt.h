// Makes an output's descriptions again from its source, and compares them.
#pragma once

#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// Makes manifest, config.json, index and canaries again from `source`'s headers and config, the manifest's options and
/// checksums, and this program's layouts. Names every difference. source: the checkpoint, or its description in the
/// manifest. The description alone cannot show that it belongs to another checkpoint.
///
/// If this version of the program wrote the manifest, the texts must be equal; otherwise only their meaning. The
/// engine's version is taken from the manifest. The counts of a lossy backend's loss too, if they are possible for
/// tensors of these sizes.
void compare_with_rebuilt(const PackedCheckpoint& packed, const Checkpoint& source, Problems& problems);

}  // namespace mxfp4
