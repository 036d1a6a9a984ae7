// What an output says about itself, made again from what it was made from, and compared.
#pragma once

#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// Makes manifest, config.json, index and canaries again from `source`'s headers and config, from the options and
/// checksums in the manifest, and from this program's layouts, and names what differs. source: the checkpoint, or the
/// manifest's own description of it, which cannot show that the description is another checkpoint's.
///
/// A manifest of this program's version must have the same text. One of another version must mean the same. The
/// engine's version is taken from the manifest, and so are the counts of a lossy backend's loss, once they can be those
/// of tensors of these sizes.
void compare_with_rebuilt(const PackedCheckpoint& packed, const Checkpoint& source, Problems& problems);

}  // namespace mxfp4
