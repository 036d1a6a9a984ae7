// Why one expert's packed bytes may differ from what a plan made: the usual mistakes, tried in turn.
#pragma once

#include "kernels/pack/device.h"
#include "src/plan/plan.h"

namespace mxfp4 {

/// One expert's slice of a packed tensor on both sides, of the same size.
struct TwoSlices {
  const uint8_t *ours, *theirs;
  const Backend* their_backend;  // null: not known
};

/// Why the slices of t differ; ours is as plan packs it. A guess in words, empty where there is none.
std::string likely_cause(const Plan& plan, const PackedTensor& t, int64_t expert, Device& device,
                         const TwoSlices& slices);

}  // namespace mxfp4
