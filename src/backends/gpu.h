// The GPUs that --gpu accepts, and the GPU of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mxfp4 {

/// The architecture of a GPU: "sm90" for "H100" and for "sm90"; empty if the GPU is unknown.
std::string architecture_of(const std::string& gpu);

/// "sm75", "sm80", .., "cpu"
std::vector<std::string> architectures();

/// "sm75 (t4), sm80 (a30, a100), .., cpu"
std::string known_architectures();

/// The memory of a GPU in bytes. For an architecture it is 80 GB, limited to the smallest and largest memory of its
/// GPUs. It is 80 GB for an unknown GPU, and 0, no limit, for a CPU.
int64_t memory_of(const std::string& gpu);

/// The architecture of the first GPU that the drivers of NVIDIA or AMD list; empty if there is no GPU or its
/// architecture is unknown. `root` is the directory of proc and sys.
std::string gpu_here(const std::string& root = "/");

/// Whether a backend's GPUs ("SM80 and later", "SM100, SM103", "SM12x", "CPU (AVX-512, AMX)") include the architecture.
bool runs_on(const std::string& gpus, const std::string& architecture);

}  // namespace mxfp4
