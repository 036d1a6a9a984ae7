// The messages of a conversion: its plan, choices and result.
#pragma once

#include "src/base/json.h"
#include "src/checkpoint/published_list.h"

namespace mxfp4 {

class Conversion;
struct ConvertOptions;
struct DeviceChoice;
struct Input;
struct Plan;

/// Prints the choices and every tensor, with -v.
void note_choices(const ConvertOptions& options, const Plan& plan, const DeviceChoice& devices);
/// Prints the plan for a dry run. Throws Error{io} if the disk is too small.
void show_plan(const ConvertOptions& options, const Plan& plan);
/// Prints a summary, and returns what --json prints. compared: the files whose published hashes were compared.
Json report(const ConvertOptions& options, const Input& in, const PublishedList& compared, const Plan& plan,
            const DeviceChoice& devices, const Conversion& conversion);

}  // namespace mxfp4
