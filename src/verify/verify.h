// verify: the plan read backwards.
#pragma once

#include <string>

#include "src/device/device_choice.h"
#include "src/io/page_cache.h"
#include "src/io/parts.h"
#include "src/io/link.h"
#include "src/verify/kernel_bench.h"
#include "src/verify/verify_kernels.h"

namespace mxfp4 {

/// files: sizes and checksums against the manifest. bytes: also every packed byte, unpacked, against the source, and
/// every pad byte against the value its layout prescribes. kernels: also the fused MoE on OUT's bytes against a
/// reference made from the source, which is needed for it. highest: what OUT's backend and the source permit.
enum class Level { files, bytes, kernels, highest };

struct VerifyOptions {
  // source may be empty: the manifest's checksums stand for it; out too where a shape is timed
  std::string out, source;
  std::string published;       // a list of hashes that the original files must have, or empty
  Links links = Links::offer;  // of the source
  Level level = Level::highest;
  KernelOptions kernels;
  std::string save;  // file for the batches that level kernels computes, or empty
  BenchOptions bench;
  PartNumber part;  // of OUT's tensors, dealt as convert deals them; the first checks all else
  int threads = 0;
  DeviceOptions device;
  PageCache page_cache = PageCache::automatic;  // whether what is read of OUT stays there
  bool json = false;
};

/// Throws Error{input} where bytes of an output do not have its manifest's checksums, or those of its SHA256SUMS.
/// Prints nothing.
void check_bytes(const std::string& out, int threads);

/// True where OUT is right. The verdict and what is wrong are printed on stdout.
bool verify(const VerifyOptions& options);

}  // namespace mxfp4
