// A packed output opened for reading: its plan is made again from the manifest and compared with the files.
#pragma once

#include <memory>

#include "src/packed/held_files.h"
#include "src/packed/manifest.h"

namespace mxfp4 {

/// One set of packed tensors in an output.
struct PackedSet {
  /// Whether the source's codes and scales are not in the set.
  bool is_lossy() const { return plan.backend->rewrite != nullptr; }

  Plan plan;                   // as convert made it, but `stored` has the tensors' places
  std::vector<Tensor> stored;  // from OUT's headers: stored[i] is plan.packed[i], Tensor::file an index of files
  std::vector<std::string> checksums;  // of plan.packed[i] in the manifest
};

struct PackedCheckpoint {
  PackedCheckpoint(const std::string& shown, HeldFiles files) : dir(shown), held(std::move(files)) {}

  std::string dir;  // as the user names it
  HeldFiles held;   // the manifest and its listed files: all reads go through them
  Manifest manifest;
  Model model;       // refers to manifest.source
  Checkpoint files;  // OUT's safetensors files
  std::vector<PackedSet> sets;
  std::vector<Tensor> copied;  // the place of plan.copied[i] of every set

  /// The first set that holds the source's values. If there is none, throws Error{input} with the
  /// reasons.
  const PackedSet& unpackable_set() const;
};

/// The plan of a set in the manifest. A tensor that only the plan or only the manifest has is a problem. Planning stops
/// before it exceeds the number of listed tensors.
Plan plan_of(const Manifest& manifest, const ManifestSet& set, const Model& model, Problems& problems);

/// Reads manifest, tables and headers, and checks that every planned tensor is there with the planned dtype and shape.
/// Missing and different tensors are added to `problems`. There are no sets if a table or the source's headers are
/// damaged.
/// Throws Error{input} if OUT is not a readable output at all. Throws Error{io} if another run replaces OUT during this
/// call; after the call, reads continue from the opened files.
std::unique_ptr<PackedCheckpoint> open_packed(const std::string& out, Problems& problems);
/// The same for an opened directory. shown: its name in messages.
std::unique_ptr<PackedCheckpoint> open_packed(const Folder& out, const std::string& shown, Problems& problems);

}  // namespace mxfp4
