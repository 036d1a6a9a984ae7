// --device: the choice of the devices that pack and unpack, and the number of threads that use a GPU.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/pack/device.h"

namespace mxfp4 {

/// The user's choice: "auto", "cpu", "cuda" (the first GPU), "cuda:1" or "cuda:0,2".
struct DeviceOptions {
  std::string name = "auto";
};

/// The numbers of the GPUs in a device name; empty for "auto" and "cpu". Throws Error{usage} for any other text.
std::vector<int> gpus_in(const std::string& name);

/// `gpus` has their numbers; without any the CPU packs. If `automatic`, the CPU replaces GPUs that cannot be opened.
/// `why` is the reason for the choice, for the reader.
struct DeviceChoice {
  std::vector<int> gpus;
  bool automatic = false;
  std::string why = {};
};
/// "cpu" or "cuda:0,2".
std::string name_of(const DeviceChoice& choice);

/// The bytes to pack or unpack, and the number of threads (0: one for each core).
struct PackingWork {
  int threads;
  int64_t bytes;
  bool unpacks = false;
};
/// The reason why the CPU finishes no later than a GPU; empty if the GPU is faster.
std::string why_cpu(const PackingWork& work);

/// A GPU that is requested by name and cannot be used is a DeviceError. With "auto" the CPU replaces such a GPU; a
/// program that was built with CUDA prints one note. With "auto" and `work`, the faster device is chosen; without
/// `work`, the GPU.
DeviceChoice choose_device(const DeviceOptions& options, const std::optional<PackingWork>& work = {});

/// The number of threads, the first of `workers`, that use a GPU. The others pack on the CPU at the same time.
int gpu_workers(const DeviceChoice& choice, int workers);

/// Opens the device of worker `index` of `workers`. GPUs are assigned in turn.
std::unique_ptr<Device> open_device(const DeviceChoice& choice, int index, int workers);

}  // namespace mxfp4
