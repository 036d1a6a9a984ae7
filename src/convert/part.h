// convert --part: the share of one node in an output, and the merge of all parts.
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

/// The properties that all parts of a conversion share.
PartRun run_of_parts(const ConvertOptions& options, const Plan& plan, const Input& in);

/// The parts of a conversion beside OUT. If they belong to another conversion, throws Error{usage}, or returns nothing
/// if OUT is to be replaced.
std::optional<Parts> find_parts(const ConvertOptions& options, const Plan& plan, const Input& in);

/// Carries out options.part: writes its files and its record, or nothing if the part is finished. Prints a line, and
/// returns what --json prints.
Json convert_part(const ConvertOptions& options, const Plan& plan, const Input& in, const DeviceChoice& devices);
/// The same if all parts are merged.
Json merged_part(const ConvertOptions& options, const Plan& plan);
/// Whether OUT, which has the same set, was made from the source's tensors. Reads the share of options.part first, and
/// the rest only if the share is equal. False if options.part has no files. False while there are parts: then OUT is
/// being replaced.
bool is_merged(const ConvertOptions& options, const Plan& plan, const Input& in, const Manifest& out);
/// Whether the existing parts were made from the same tensors as OUT's equal set, by their records. Throws Error{usage}
/// as Parts does.
bool are_merged(const ConvertOptions& options, const Plan& plan, const Input& in, const Manifest& out);

/// The options in a part's record, with the plan's choices, and the reverse.
Json command_of(const ConvertOptions& options, const Plan& plan);
ConvertOptions read_command(const Json& command);

/// Excludes the jobs and files of finished parts from the conversion.
void leave_out(const Parts& parts, Conversion& conversion);

}  // namespace mxfp4
