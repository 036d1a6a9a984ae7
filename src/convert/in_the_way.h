// An OUT that is there already, and was not asked to be replaced or extended.
#pragma once

namespace mxfp4 {

struct ConvertOptions;
struct Input;
struct Plan;

/// Throws Error{usage} if OUT is an output of mxfp4-pack that the plan's set would replace: what is proposed first
/// keeps the sets that are there. An interrupted run that is to be continued is left to OutputDir.
void refuse_to_replace(const ConvertOptions& options, const Plan& plan, const Input& in);

}  // namespace mxfp4
