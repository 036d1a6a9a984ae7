// The GPUs that --gpu knows, and the one that is here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mxfp4 {

/// The architecture that a GPU is of: "sm90" for "H100", as for "sm90". Empty where it is not known.
std::string architecture_of(const std::string& gpu);

/// "sm75", "sm80", .., "cpu"
std::vector<std::string> architectures();

/// "sm75 (t4), sm80 (a30, a100), .., cpu"
std::string known_architectures();

/// The memory of a GPU in bytes. Of an architecture: 80 GB, or what its GPUs have at least or at most. 80 GB for an
/// unknown one; 0, no limit, for a CPU.
int64_t memory_of(const std::string& gpu);

/// The architecture of the first GPU that the drivers of NVIDIA or AMD list; empty where there is none, or one that is
/// not known. root: where proc and sys lie.
std::string gpu_here(const std::string& root = "/");

/// Whether a backend's GPUs ("SM80 and later", "SM100, SM103", "SM12x", "CPU (AVX-512, AMX)") are such.
bool runs_on(const std::string& gpus, const std::string& architecture);

}  // namespace mxfp4
