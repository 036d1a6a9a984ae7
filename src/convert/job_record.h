// What one job adds to a conversion's checksums and counts, as a line of the journal, and back.
#pragma once

#include <string>

#include "src/plan/plan.h"

namespace mxfp4 {

struct Checksums;

/// What a job counts besides; zero_scales: scale bytes 0x00. loss: of a lossy backend.
struct JobCounts {
  int64_t zero_scales = 0;
  RewriteLoss loss = {};
};

std::string record_of(const Plan& plan, const Job& job, Checksums& sums, const JobCounts& counts);

/// False if the text is no record of this job; then sums and counts stay as they are.
bool read_record(const Plan& plan, const Job& job, const std::string& record, Checksums& sums, JobCounts& counts);

}  // namespace mxfp4
