// verify: reads an output by its plan and compares it with its manifest and its source.
#pragma once

#include <string>

#include "src/device/device_choice.h"
#include "src/io/link.h"
#include "src/io/page_cache.h"
#include "src/io/parts.h"
#include "src/verify/verify_kernels.h"

namespace mxfp4 {

/// The levels of verify; each includes the former:
/// - files: Sizes and checksums are compared with the manifest.
/// - bytes: Every packed byte is unpacked and compared with the source, and every pad byte with the layout's value.
/// - kernels: The fused MoE on OUT's bytes is compared with a reference that is made from the source.
/// - highest: The highest level that OUT's backend and the given source permit.
enum class Level { files, bytes, kernels, highest };

struct VerifyOptions {
  std::string out;
  std::string source;          // or empty: the manifest's checksums replace it
  std::string published;       // a list of hashes that the original files must have, or empty
  Links links = Links::offer;  // of the source
  Level level = Level::highest;
  KernelOptions kernels;
  std::string save;  // file for the batches that level kernels computes, or empty
  PartNumber part;   // of OUT's tensors, divided as by convert; the first part checks all other files
  int threads = 0;
  DeviceOptions device;
  PageCache page_cache = PageCache::automatic;  // whether the files of OUT stay there
  bool json = false;
};

/// Throws Error{input} if an output does not have the checksums of its manifest. Prints nothing.
void check_bytes(const std::string& out, int threads);

/// Whether OUT is right. Prints the verdict and all problems to stdout.
bool verify(const VerifyOptions& options);

}  // namespace mxfp4
