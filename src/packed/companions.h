// What convert writes beside the files of its plan.
#pragma once

#include "src/io/output.h"
#include "src/packed/manifest.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

/// All files of `earlier` but those that are written anew: to begin with, where the plan's set is added to it.
void link_earlier(const Plan& plan, const OutputDir& out, const PackedCheckpoint& earlier);

/// Canary, config, index and the checkpoint's other files; the manifest comes last. `earlier`: OUT, where the plan's
/// set is added to it, or null.
void write_companions(const Plan& plan, const OutputDir& out, const Checksums& sums, const ManifestOptions& options,
                      const PackedCheckpoint* earlier);

/// SHA256SUMS of every other file. `earlier`: a directory (may be empty) whose SHA256SUMS stands for files that both
/// share.
void write_sums(const OutputDir& out, const std::string& earlier, int threads);

}  // namespace mxfp4
