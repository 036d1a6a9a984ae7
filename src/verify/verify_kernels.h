// verify --level kernels: computes whole MoE layers on OUT's packed bytes and compares them with a reference that is
// made from the source. The kernels read the bytes as the engine's kernels do.
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
  PartNumber part;              // of the layers: every count-th
  std::vector<int64_t> tokens = {1, 16, 256};
  uint64_t seed = 1;
  int threads = 0;
  std::string device = "auto";  // cpu or cuda; auto: cuda if it can run the kernel and has enough memory
  double tolerance = 0;         // of relative L2; 0: the kernel's own
  KernelFile* file = nullptr;   // receives the batches and results
};

/// One batch through one layer.
struct KernelCheck {
  std::string layer;
  bool forced = false;  // tokens are sent to every expert, without routing
  int64_t tokens = 0, experts = 0, covered = 0;
  double w13_rms = 0, clamped = 0;  // of the reference, see MoeReference
  Comparison comparison;
  int64_t leaks = 0;      // values in padded columns that are not 0
  std::string diagnosis;  // of a wrong result: the mistake that explains it, or empty
  double explained = 0;   // share of the squared error that the diagnosis accounts for
  bool right() const { return comparison.right() && leaks == 0; }
};

/// Seconds of each step. kernel: with the upload to a GPU. The search for the mistake behind a difference is not
/// counted.
struct KernelSeconds {
  double reading = 0, reference = 0, kernel = 0;
};

struct KernelReport {
  std::string kernel, device, reason;  // reason: of the tolerance
  KernelSeconds seconds;
  std::vector<KernelCheck> checks;
};

/// Throws Error{usage} if OUT lacks a requested layer.
void check_layers(const PackedCheckpoint& packed, const KernelOptions& options);

/// Checks one of OUT's sets. Reports a problem for each wrong
/// batch, and for each setting of OUT that differs from the source's.
KernelReport verify_kernels(const PackedCheckpoint& packed, size_t set, const Checkpoint& source,
                            const KernelOptions& options, Problems& problems);

Json to_json(const KernelReport& report);
/// A table with a line for each batch. prefix: the text before the first line.
std::string to_text(const KernelReport& report, const std::string& prefix);

}  // namespace mxfp4
