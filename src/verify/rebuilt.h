// What an output says about itself, made again from what it was made from, and compared.
#pragma once

#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

/// Makes manifest, config.json, index and canaries again from `source`'s headers and config, from the options and
/// checksums in the manifest, and from this program's layouts, and names what differs. source: the checkpoint, or the
/// manifest's own description of it, which cannot show that the description is another checkpoint's.
///
/// A manifest of this program's version must have the same text. One of another version must mean the same, except for
/// the versions that its sets fit and the settings that they require, which a newer version may know better. The counts
/// of a lossy backend's loss are taken from the manifest.
void compare_with_rebuilt(const PackedCheckpoint& packed, const Checkpoint& source, Problems& problems);

/// Names every file below OUT that the manifest does not list. SHA256SUMS, and what git and download tools keep in a
/// directory (.git, .gitattributes, .cache), may be there.
void check_nothing_else(const PackedCheckpoint& packed, Problems& problems);

}  // namespace mxfp4
