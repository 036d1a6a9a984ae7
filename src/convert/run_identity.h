// What a run is given, as checksums: a run goes on only with what was given the same.
#pragma once

#include "src/convert/convert.h"

namespace mxfp4 {

struct Input;

/// Everything that a run's bytes depend on: the plan with the options behind it, and the source's files as they are.
OpenOptions open_options_of(const Plan& plan, const ConvertOptions& options, const Input& in);

/// The same for a part, whose source other nodes see: checksums of its headers and small files, sizes and times of its
/// shards, and of OUT's manifest, where a set is added to it. All parts are to replace OUT, or to be added to it, or
/// none. But for `run`.
JournalHead part_head_of(const Plan& plan, const ConvertOptions& options, const Input& in);

}  // namespace mxfp4
