// Refuses an existing OUT that the user has not asked to replace or extend.
#pragma once

#include <string>

namespace mxfp4 {

struct ConvertOptions;
struct Input;
struct Plan;

/// Throws Error{usage} if OUT is an output of mxfp4-pack that the plan's set would replace. If possible, the message
/// proposes --add first, which keeps the existing sets. differs: how OUT's set for this backend differs from the
/// plan's; may be empty.
void refuse_to_replace(const ConvertOptions& options, const Plan& plan, const Input& in, const std::string& differs);

}  // namespace mxfp4
