// The files that convert writes besides the files of its plan.
#pragma once

#include <functional>

#include "src/base/long_text.h"
#include "src/io/output.h"
#include "src/packed/manifest.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// Reads every companion. Damaged, missing and unreadable companions become problems before anything is written.
void check_companions(const Checkpoint& source, Problems& problems);

/// An output's files and sets before another set is added.
struct EarlierOutput {
  std::vector<ListedFile> files;
  std::vector<ManifestSet> sets;
};

/// Takes a file without tensors: its relative name, and a function that gives its text.
using PutText = std::function<void(const std::string& name, const TextSource& text)>;

/// Passes every text of an output except the manifest to `put`: canary, companions, index, tables and config. The
/// plan's set is the last in the output. earlier: the output before the set is added, or null. The same arguments give
/// the same texts, so that verify can make them again. Returns the files that the manifest lists.
std::vector<ListedFile> make_texts(const Plan& plan, const TensorSums& sums, const EarlierOutput* earlier,
                                   const PutText& put);

/// The relative names of all files that a conversion writes; some of them may not be written.
std::vector<std::string> files_made(const Plan& plan);

/// Throws Error{io} if the file system has changed a file's name: vfat ignores case and drops a dot at the end.
void check_names(const OutputDir& out, const std::vector<std::string>& names);

/// About how many bytes a conversion writes besides the files of its plan.
int64_t bytes_beside(const Plan& plan);

/// The relative names of the files that belong to the plan's set only.
std::set<std::string> names_of_set(const Plan& plan);

/// The first step of adding a set: links all files of `earlier` into `out`, except those that will be written again.
void link_earlier(const Plan& plan, const OutputDir& out, const PackedCheckpoint& earlier);

/// Writes canary, config, index, tables and companions, and the manifest last. `existing`: OUT if the plan's set is
/// added to it, else null.
void write_companions(const Plan& plan, const OutputDir& out, const Checksums& sums, const ManifestOptions& options,
                      const PackedCheckpoint* existing);

}  // namespace mxfp4
