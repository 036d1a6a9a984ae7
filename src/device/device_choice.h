// --device: who packs and unpacks, and how many threads feed it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/pack/device.h"

namespace mxfp4 {

/// As the user says it. name: "auto", "cpu", "cuda" (the first GPU), "cuda:1" or "cuda:0,2".
/// memory: bytes of each GPU that may be taken; 0: what the threads ask for.
struct DeviceOptions {
  std::string name = "auto";
  int64_t memory = 0;
};

/// The numbers of the GPUs that such a name says; none of auto and cpu. Throws Error{usage} where it is no such name.
std::vector<int> gpus_in(const std::string& name);

/// gpus: their numbers; empty: the CPU. automatic: it takes the place of GPUs that cannot be opened. why: for people.
struct DeviceChoice {
  std::vector<int> gpus;
  int64_t memory = 0;
  bool automatic = false;
  std::string why = {};
};
/// "cpu" or "cuda:0,2".
std::string name_of(const DeviceChoice& choice);

/// What is to be packed, and by how many threads (0: one for each core); or unpacked.
struct PackingWork {
  int threads;
  int64_t bytes;
  bool unpacks = false;
};
/// Why the CPU is done with it no later than a GPU; empty where it is not.
std::string why_cpu(const PackingWork& work);

/// GPUs that are asked for by name and cannot be used are a DeviceError; with "auto" the CPU takes their place, which
/// is said once in a program that was built with CUDA. With "auto" and `work`, the one that is done sooner; without,
/// the GPU.
DeviceChoice choose_device(const DeviceOptions& options, const std::optional<PackingWork>& work = {});

/// How many of `workers` threads work with a GPU, the first ones; the others pack on the CPU beside them.
int gpu_workers(const DeviceChoice& choice, int workers);

/// What worker `index` of `workers` works with: GPUs are taken in turn.
std::unique_ptr<Device> open_device(const DeviceChoice& choice, int index, int workers);

}  // namespace mxfp4
