// The plan and the result of a conversion, as text or JSON on stdout.
#pragma once

#include "src/plan/plan.h"

namespace mxfp4 {

/// The resources of a conversion.
struct PlanCost {
  int threads = 1;   // threads with buffers
  int64_t free = 0;  // bytes on the file system of OUT
};

/// convert --dry-run: tensors by role, padding, memory and disk; with -v every output tensor with dtype, shape,
/// file and bytes.
void print_plan(const Plan& plan, const PlanCost& cost, bool json);

/// With -v, prints every output tensor on stderr.
void note_tensors(const Plan& plan);

/// The object that convert --json prints.
Json result_of(const Plan& plan, const std::string& out, int64_t zero_scales);
/// The final notes of convert: the written files, the speed and the next steps. source: the options of verify that name
/// the checkpoint. It is empty if OUT cannot be compared with the checkpoint.
void note_result(const Plan& plan, const std::string& source, const std::string& out, double seconds);

}  // namespace mxfp4
