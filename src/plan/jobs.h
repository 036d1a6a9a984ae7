// The jobs of a plan, and the bytes that each of them writes.
#pragma once

#include <vector>

#include "src/plan/plan.h"

namespace mxfp4 {

/// Divides all tensors into jobs.
void add_jobs(Plan& plan, const PlanOptions& options);

/// A range of one of the plan's files.
struct FileRange {
  int file = 0;
  int64_t offset = 0, bytes = 0;
};

/// The ranges that a job writes: every expert's slice on every rank, or every copied piece. None if the job only reads.
std::vector<FileRange> output_of(const Plan& plan, const Job& job);

/// The files that a job writes.
std::vector<int> files_of(const Plan& plan, const Job& job);

/// The bytes that a job writes; for a job that only reads, the bytes that it reads.
int64_t bytes_of(const Plan& plan, const Job& job);

}  // namespace mxfp4
