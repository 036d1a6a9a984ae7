// The plan and the result of a conversion, as text or JSON on stdout.
#pragma once

#include "src/plan/plan.h"

namespace mxfp4 {

/// What `convert` needs at its peak: buffers of `threads` workers and the plan itself, in bytes.
int64_t peak_memory(const Plan& plan, int threads);

/// convert --dry-run: every output tensor with dtype, shape, file and bytes; padding, memory and disk.
void print_plan(const Plan& plan, int threads, bool json);

/// The object that convert --json prints.
Json result_of(const Plan& plan, const std::string& out, int64_t zero_scales);
/// The last words of convert without it.
void note_result(const Plan& plan, const std::string& out);

}  // namespace mxfp4
