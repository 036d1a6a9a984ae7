// Explains a wrong result: the reference is computed again with each likely mistake, and the mistake that gives the
// same result is named.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/moe/cpu/kernel_format.h"
#include "kernels/moe/moe_source.h"

namespace mxfp4 {

/// One rank's part of the layer, and the routing of the tokens on that rank. With tensor parallelism a rank has some
/// columns of the intermediate, and only the first rank has the bias of down. With expert parallelism a rank has some
/// experts. The results of the ranks add up to the layer.
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
  double routed_scaling = 1;  // included in the weights of every routing
};

struct Diagnosis {
  std::string mistake;   // empty: no likely one explains the result
  double error = 0;      // relative L2 between the result and the result of that mistake
  double explained = 0;  // share of the squared error that the mistake accounts for
};

/// The reference's result, summed over the ranks.
std::vector<double> reference_of(const MoeCase& layer);

/// The format's result on the packed bytes, summed over the ranks.
std::vector<float> packed_result_of(const MoeCase& layer, const KernelFormat& format);

/// result: [tokens][hidden], the kernel's, summed over the ranks. A mistake explains the result if it brings the
/// relative L2 error over all tokens below `tolerance`. It must also remove three tenths of the squared error, and nine
/// tenths of the error that the tolerance does not account for. The best explanation is named. A mistake that changes
/// nothing explains nothing.
Diagnosis diagnose(const MoeCase& layer, std::span<const float> result, double tolerance);

}  // namespace mxfp4
