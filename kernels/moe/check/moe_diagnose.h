// What a wrong result looks like: the reference is computed again with each likely mistake in it, and the mistake
// that gives the same result is named.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/moe/cpu/kernel_format.h"
#include "kernels/moe/moe_source.h"

namespace mxfp4 {

/// What one rank holds: its part of the layer (tensor parallel: columns of the intermediate, down's bias on the first
/// rank only; expert parallel: some experts), and the tokens' routing as it sees it. Ranks add up to the layer.
struct MoeShard {
  MoeConfig config;
  MoeSource source;
  Routing routing;
  PackedMoe packed;
};

struct MoeCase {
  const KernelFormat* format = nullptr;
  std::vector<MoeShard> shards;
  std::vector<float> x;       // [tokens][hidden]
  double routed_scaling = 1;  // that every routing's weights hold
};

struct Diagnosis {
  std::string mistake;   // empty: no likely one explains the result
  double error = 0;      // relative L2 between the result and what that mistake gives
  double explained = 0;  // share of the squared error that the mistake accounts for
};

/// The reference's result, summed over the ranks.
std::vector<double> reference_of(const MoeCase& layer);

/// The format's result on the packed bytes, summed over the ranks.
std::vector<float> packed_result_of(const MoeCase& layer, const KernelFormat& format);

/// result: [tokens][hidden], the kernel's, summed over the ranks. A mistake explains it where over all tokens the
/// relative L2 error falls below `tolerance`, and nine tenths of what that tolerance does not account for, and three
/// tenths of all of the squared error, are gone; the best one is named. A mistake that changes nothing explains
/// nothing.
Diagnosis diagnose(const MoeCase& layer, std::span<const float> result, double tolerance);

}  // namespace mxfp4
