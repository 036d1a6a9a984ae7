// verify --level kernels: whole MoE layers on OUT's packed bytes, by kernels that read them as the engine's do, against
// a reference made from the source.
#pragma once

#include <string>
#include <vector>

#include "kernels/moe/moe_compare.h"
#include "src/checkpoint/checkpoint.h"
#include "src/io/parts.h"
#include "src/verify/kernel_file.h"

namespace mxfp4 {

struct PackedCheckpoint;

struct KernelOptions {
  bool all_layers = false;
  std::vector<int64_t> layers;  // their numbers; empty: the first one
  PartNumber part;              // of the layers, which are dealt out in turn
  std::vector<int64_t> tokens = {1, 16, 256};
  uint64_t seed = 1;
  int threads = 0;
  std::string device = "auto";  // cpu, cuda; auto: cuda where it can run the kernel and has the memory for it
  double tolerance = 0;         // of relative L2; 0: the kernel's own
  KernelFile* file = nullptr;   // gets what was computed
};

/// One batch through one layer.
struct KernelCheck {
  std::string layer;
  bool forced = false;  // tokens are sent to every expert, not routed
  int64_t tokens = 0, experts = 0, covered = 0;
  double w13_rms = 0, clamped = 0;  // of the reference, see MoeReference
  Comparison comparison;
  int64_t leaks = 0;      // not 0: padded columns hold something
  std::string diagnosis;  // where wrong: the mistake that explains it, or empty
  double explained = 0;   // share of the squared error that the diagnosis accounts for
  bool right() const { return comparison.right() && leaks == 0; }
};

/// Where the time went. kernel: with the upload to a GPU. The search for the mistake behind a difference is in none.
struct KernelSeconds {
  double reading = 0, reference = 0, kernel = 0;
};

struct KernelReport {
  std::string kernel, device, reason;  // reason: of the tolerance
  KernelSeconds seconds;
  std::vector<KernelCheck> checks;
};

/// Throws Error{usage} where OUT has not all the layers that are asked for.
void check_layers(const PackedCheckpoint& packed, const KernelOptions& options);

/// One of OUT's sets; where it lacks ranks, those that it has are compared. What is wrong goes to `problems`: a line
/// for each batch, and settings of OUT that are not the source's.
KernelReport verify_kernels(const PackedCheckpoint& packed, size_t set, const Checkpoint& source,
                            const KernelOptions& options, Problems& problems);

Json to_json(const KernelReport& report);
/// A table with a line for each batch.
/// prefix: before the first line.
std::string to_text(const KernelReport& report, const std::string& prefix);

}  // namespace mxfp4
