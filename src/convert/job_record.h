// A job's checksums and counts as a line of the journal.
#pragma once

#include <string>

#include "src/plan/plan.h"

namespace mxfp4 {

struct Checksums;

/// A job's counts. zero_scales: scale bytes 0x00. loss: of a lossy backend.
struct JobCounts {
  int64_t zero_scales = 0;
  RewriteLoss loss = {};
};

std::string record_of(const Plan& plan, const Job& job, Checksums& sums, const JobCounts& counts);

/// Reads a record into sums and counts. Returns false, and changes neither, if the text is not a record of this job.
bool read_record(const Plan& plan, const Job& job, const std::string& record, Checksums& sums, JobCounts& counts);

}  // namespace mxfp4
