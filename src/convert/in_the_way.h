// An OUT that is there already, and was not asked to be replaced or extended.
#pragma once

#include <string>

namespace mxfp4 {

struct ConvertOptions;
struct Input;
struct Plan;

/// Throws Error{usage} if OUT is an output of mxfp4-pack that the plan's set would replace: what is proposed first
/// keeps the sets that are there. differs: how OUT's own set of this kind is another; may be empty.
void refuse_to_replace(const ConvertOptions& options, const Plan& plan, const Input& in, const std::string& differs);

}  // namespace mxfp4
