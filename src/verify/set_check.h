// Compares the tensors of a set with the manifest's checksums and, at level bytes, with the source.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/verify/verify.h"

namespace mxfp4 {

struct Original;
struct PackedCheckpoint;
struct PackedSet;

struct SetReport {
  std::vector<std::pair<std::string, std::string>> problems;  // "FILE: TENSOR" and text, sorted
  /// A message if the source is certainly another checkpoint, else empty: the set matches its manifest, and most packed
  /// and most copied tensors differ from the source.
  std::string other_source;
};

/// Checks one set of packed tensors, or one part of it. For the first set it also checks the copied tensors. level:
/// above bytes is as bytes.
SetReport check_set(const PackedCheckpoint& packed, const PackedSet& set, const Original& source,
                    const VerifyOptions& options, Level level, const DeviceChoice& devices);

/// The problems of all sets at level files.
SetReport check_checksums(const PackedCheckpoint& packed, int threads, PageCache page_cache);

}  // namespace mxfp4
