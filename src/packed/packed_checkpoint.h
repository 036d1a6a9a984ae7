// A packed output opened for reading: the plan that made it, made again from its manifest, over the files as they are.
#pragma once

#include <memory>

#include "src/packed/held_files.h"
#include "src/packed/manifest.h"

namespace mxfp4 {

/// One set of packed tensors in an output.
struct PackedSet {
  Plan plan;                   // as it was made; where tensors are kept, `stored` says
  std::vector<Tensor> stored;  // by OUT's own headers: stored[i] is plan.packed[i], Tensor::file an index of files
  std::vector<std::string> checksums;  // in the manifest
};

struct PackedCheckpoint {
  PackedCheckpoint(const std::string& shown, HeldFiles files) : dir(shown), held(std::move(files)) {}

  std::string dir;  // as the user calls it
  HeldFiles held;   // the manifest, the files that it lists and SHA256SUMS: nothing is read but through these
  Manifest manifest;
  Model model;       // over manifest.source
  Checkpoint files;  // OUT's safetensors files
  std::vector<PackedSet> sets;
  std::vector<Tensor> copied;  // copied[i] is where plan.copied[i] of every set is kept

  /// The first set that holds all of its ranks and the source's values. Throws Error{input} that says why there is
  /// none.
  const PackedSet& unpackable_set() const;
};

/// The plan of one of a manifest's sets. A tensor that only one of the two has is a problem, found before more is
/// planned than is listed.
Plan plan_of(const Manifest& manifest, const ManifestSet& set, const Model& model, Problems& problems);

/// Reads manifest, tables and headers, and checks that every planned tensor is there with the planned dtype and shape;
/// what is missing or different goes to `problems`. There are no sets if a table or the source's headers are damaged.
/// Throws Error{input} where OUT is not a readable output at all, and Error{io} where another run replaces it while
/// this reads; replaced later, the opened one is still read.
std::unique_ptr<PackedCheckpoint> open_packed(const std::string& out, Problems& problems);
/// The same for an output that is held. shown: what messages call it.
std::unique_ptr<PackedCheckpoint> open_packed(const Folder& out, const std::string& shown, Problems& problems);

}  // namespace mxfp4
