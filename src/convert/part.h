// convert --part: what one node writes of an output, and how the parts of all nodes come together.
#pragma once

#include <optional>
#include <string>

#include "src/base/json.h"

namespace mxfp4 {

class Conversion;
struct ConvertOptions;
struct DeviceChoice;
struct Input;
struct Manifest;
struct PartRun;
class Parts;
struct Plan;

/// What all parts of a conversion are given.
PartRun run_of_parts(const ConvertOptions& options, const Plan& plan, const Input& in);

/// The parts of a conversion that are beside OUT. Throws Error{usage} if they are of another one; if OUT is to be
/// replaced there are none then.
std::optional<Parts> find_parts(const ConvertOptions& options, const Plan& plan, const Input& in);

/// Carries out options.part: writes its files and its record, and nothing where that was done. Says it, and returns
/// what --json prints.
Json convert_part(const ConvertOptions& options, const Plan& plan, const Input& in, const DeviceChoice& devices);
/// The same where all parts are merged.
Json merged_part(const ConvertOptions& options, const Plan& plan);
/// Whether the source's tensors are those that an OUT with the same set was made from, and options.part has files: its
/// share is read, and where that is the same the rest too. False while there are parts: then OUT is being replaced.
bool is_merged(const ConvertOptions& options, const Plan& plan, const Input& in, const Manifest& out);
/// Whether the parts that are there, by their records, were made of the tensors that an OUT with the same set was.
/// Throws Error{usage} as Parts does.
bool are_merged(const ConvertOptions& options, const Plan& plan, const Input& in, const Manifest& out);

/// The options that a part's record has, as the plan has settled them; and back.
Json command_of(const ConvertOptions& options, const Plan& plan);
ConvertOptions read_command(const Json& command);

/// Nothing that is in a finished part is looked at any more.
void leave_out(const Parts& parts, Conversion& conversion);

}  // namespace mxfp4
