// Why one expert's packed bytes may differ from what a plan made: the usual mistakes, tried in turn.
#pragma once

#include "src/plan/transfer.h"

namespace mxfp4 {

/// ours: a slice of t as plan packs it; theirs: the slice that differs from it, of the same size. One expert.
/// A guess in words, empty where there is none.
std::string likely_cause(const Plan& plan, const PackedTensor& t, int64_t expert, Device& device, const uint8_t* ours,
                         const uint8_t* theirs);

}  // namespace mxfp4
