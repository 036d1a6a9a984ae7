// --device: who packs and unpacks, and how many threads feed it.
#pragma once

#include <memory>
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

/// gpus: their numbers; empty: the CPU. automatic: it takes the place of GPUs that cannot be opened.
struct DeviceChoice {
  std::vector<int> gpus;
  int64_t memory = 0;
  bool automatic = false;
};

/// GPUs that are asked for by name and cannot be used are a DeviceError; with "auto" the CPU takes their place, which
/// is said once in a program that was built with CUDA.
DeviceChoice choose_device(const DeviceOptions& options);

/// How many of `workers` threads work with a GPU, the first ones; the others pack on the CPU beside them.
int gpu_workers(const DeviceChoice& choice, int workers);

/// What worker `index` of `workers` works with: GPUs are taken in turn.
std::unique_ptr<Device> open_device(const DeviceChoice& choice, int index, int workers);

}  // namespace mxfp4
