// convert --add: adds a set of packed tensors to an existing output.
#pragma once

#include <set>
#include <string>

#include "src/io/output.h"
#include "src/packed/manifest.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// The index of the same set (engine, backend, layout version, ranks) in the manifest; the number of sets if the
/// manifest has no such set.
int set_number(const Manifest& m, const Backend& backend, int tp_size);

/// Throws Error{usage} if a set has the same engine, backend, and tensor-parallel size: loaders
/// select sets by these keys.
void refuse_second(const std::string& out, const Manifest& m, const Backend& backend, int tp_size);

/// Throws Error{input}: "SOURCE: not the source that OUT was made from: WHY".
[[noreturn]] void refuse_source(const std::string& source, const PackedCheckpoint& out, const std::string& why);

/// Throws Error{input} unless `source` has the tensors, dtypes, shapes and config that OUT was made from.
void check_same_form(const Checkpoint& source, const PackedCheckpoint& out);

/// The names of the tensors whose checksums in `sums` differ from those in the manifest. files[i]: whether to compare
/// the tensors of plan.files[i]; if empty, all tensors are compared.
std::vector<std::string> other_tensors(const Plan& plan, const Checksums& sums, const Manifest& m,
                                       const std::vector<bool>& files = {});
/// Throws Error{input} if other_tensors() finds any. `source`: the source's name in messages.
void check_same_contents(const std::string& source, const Plan& plan, const Checksums& sums, const Manifest& m,
                         const std::vector<bool>& files = {});

/// Makes hard links in `to` of all files below `from`, links included, except `fresh` (relative names). The fresh files
/// in `to` stay as they are, and all other files in `to` are deleted first. If the file system refuses hard links, the
/// files are copied and a warning is printed.
void link_files(const Folder& from, const OutputDir& to, const std::set<std::string>& fresh);

}  // namespace mxfp4
