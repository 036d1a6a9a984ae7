// What a conversion says: its plan, its choices, its result.
#pragma once

#include "src/base/json.h"

namespace mxfp4 {

class Conversion;
struct ConvertOptions;
struct DeviceChoice;
struct Input;
struct Plan;

/// With -v: what was chosen, and every tensor.
void note_choices(const ConvertOptions& options, const Plan& plan, const DeviceChoice& devices);
/// What a dry run prints. Throws Error{io} if the disk is too small.
void show_plan(const ConvertOptions& options, const Plan& plan);
/// Says what was done, and returns what --json prints.
Json report(const ConvertOptions& options, const Input& in, const Plan& plan, const DeviceChoice& devices,
            const Conversion& conversion);

}  // namespace mxfp4
