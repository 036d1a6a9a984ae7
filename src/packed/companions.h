// What convert writes beside the files of its plan.
#pragma once

#include <functional>

#include "src/base/long_text.h"
#include "src/io/output.h"
#include "src/packed/manifest.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// Reads every companion: one that is damaged, missing or unreadable is a problem before anything is written.
void check_companions(const Checkpoint& source, Problems& problems);

/// What an output has before another set comes to it.
struct EarlierOutput {
  std::vector<ListedFile> files;
  std::vector<ManifestSet> sets;
};

/// Takes a file that is no tensor data: its relative name and its text, which it must ask for.
using PutText = std::function<void(const std::string& name, const TextSource& text)>;

/// Makes every text of an output that `plan` is the last set of, but the manifest: canary, companions, index and config
/// go to `put`. earlier: what the set is added to, or null. The same arguments give the same texts, so that verify can
/// make them again. Returns the files that the manifest lists.
std::vector<ListedFile> make_texts(const Plan& plan, const TensorSums& sums, const ManifestOptions& options,
                                   const EarlierOutput* earlier, const PutText& put);

/// The relative names of all files that a conversion writes, and perhaps of some more.
std::vector<std::string> files_made(const Plan& plan);

/// Throws Error{io} where a file system has not kept a file under its name: vfat ignores case, and a dot at the end of
/// a name.
void check_names(const OutputDir& out, const std::vector<std::string>& names);

/// About how many bytes a conversion writes beside the files of its plan.
int64_t bytes_beside(const Plan& plan);

/// The files that are the plan's set alone, by relative name.
std::set<std::string> names_of_set(const Plan& plan);

/// All files of `earlier` but those that are written anew: to begin with, where the plan's set is added to it.
void link_earlier(const Plan& plan, const OutputDir& out, const PackedCheckpoint& earlier);

/// Canary, config, index and the checkpoint's other files; the manifest comes last. `existing`: OUT, where the plan's
/// set is added to it, or null.
void write_companions(const Plan& plan, const OutputDir& out, const Checksums& sums, const ManifestOptions& options,
                      const PackedCheckpoint* existing);

/// Writes SHA256SUMS of the manifest and of every file that it lists. earlier: a directory whose SHA256SUMS counts for
/// files that both share; it may hold nothing.
void write_sums(const OutputDir& out, const Folder& earlier, int threads);

}  // namespace mxfp4
