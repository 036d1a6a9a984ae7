// convert --add: one more set of packed tensors in an output, beside those that it has.
#pragma once

#include <set>
#include <string>

#include "src/io/output.h"
#include "src/packed/manifest.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// The index of the same set (engine, backend, layout version, ranks) among an output's; behind the last where it is
/// not there.
int set_number(const Manifest& m, const Backend& backend, const TensorParallel& tp);

/// Throws Error{usage} where a set has the same engine, backend, tensor-parallel size and one of these ranks: loaders
/// choose by them.
void refuse_second(const std::string& out, const Manifest& m, const Backend& backend, const TensorParallel& tp);

/// Throws Error{input} unless `source` has the tensors, dtypes, shapes and config that OUT was made from.
void check_same_form(const Checkpoint& source, const PackedCheckpoint& out);

/// The names of the tensors that do not have in `sums` of a plan the checksums that OUT's source had. files: only those
/// that go into these, by their number; empty: all.
std::vector<std::string> other_tensors(const Plan& plan, const Checksums& sums, const Manifest& m,
                                       const std::vector<bool>& files = {});
/// Throws Error{input} where there are any. `source`: what messages call it.
void check_same_contents(const std::string& source, const Plan& plan, const Checksums& sums, const Manifest& m,
                         const std::vector<bool>& files = {});

/// Makes a hard link in `to` of every file below `from`, links included, except `fresh` (relative names): those are
/// left as they are in `to`, and nothing else stays there. If the file system refuses hard links, files are copied,
/// with a warning.
void link_files(const Folder& from, const OutputDir& to, const std::set<std::string>& fresh);

}  // namespace mxfp4
