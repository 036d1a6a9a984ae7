// A build without CUDA.
#include "kernels/pack/resident.h"
#include "kernels/pack/upload.h"

namespace mxfp4 {

int cuda_device_count() { return 0; }

bool built_with_cuda() { return false; }

std::string cuda_description() { return cuda_missing(); }

std::string cuda_missing() { return "built without CUDA"; }

void check_cuda(int) {
  throw DeviceError("this program was built without CUDA; use --device cpu, or build it where nvcc is found");
}

void select_cuda(int index) { check_cuda(index); }

std::unique_ptr<Device> open_cuda(int index, int64_t) {
  check_cuda(index);
  return nullptr;
}

struct Resident::Maps {};
Resident::Resident() = default;
Resident::~Resident() = default;
void Resident::pack(int index, std::span<const PackItem>, void*) { check_cuda(index); }

std::unique_ptr<Upload> open_upload(int gpu, int64_t) {
  check_cuda(gpu);
  return nullptr;
}

}  // namespace mxfp4
