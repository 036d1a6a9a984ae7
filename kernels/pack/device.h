// Who packs and unpacks: the CPU, or a CUDA GPU with the same bytes.
//
// A Device is used by one thread at a time; a pipeline opens one per worker. Every function is synchronous.
// Errors of a GPU are thrown as DeviceError, which names the call and the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/device_error.h"
#include "kernels/layouts/layouts.h"
#include "kernels/layouts/matrix.h"

namespace mxfp4 {

/// Pack `matrix` into packed_bytes(layout, matrix.padded) bytes at `packed`.
struct PackItem {
  Layout layout;
  Matrix matrix;
  uint8_t* packed = nullptr;
};

/// Unpack into the rows of `matrix`, and count pad bytes that differ from the matrix's pads.
struct UnpackItem {
  Layout layout;
  const uint8_t* packed = nullptr;
  MutableMatrix matrix;
};

/// Unpack into memory of the device's own and compare with the rows of `matrix`.
/// fetch(first, end): reads rows first to end of the views into memory. It is called just before the comparison, so
/// that the rows are still in the CPU's caches. Null if all rows are in memory.
struct CompareItem {
  Layout layout;
  const uint8_t* packed = nullptr;
  Matrix matrix;
  std::function<void(int64_t first, int64_t end)> fetch = {};
};

/// Bytes of one view that differ; (n, b) is the first, in the view's own rows.
struct ViewReport {
  int64_t wrong = 0;
  int64_t n = 0, b = 0;
};
struct CompareReport {
  PadReport pads;
  ViewReport view[2];
};

/// Host bytes that pack() reads or writes, and their XXH3-128 (seed 0), if the device computed it.
struct Checksum {
  const uint8_t* data;
  int64_t bytes;
  uint64_t low = 0, high = 0;
  bool done = false;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  /// Memory that the device reads and writes fastest (page-locked for CUDA); aligned to 4096.
  virtual uint8_t* allocate(int64_t bytes) = 0;
  virtual void release(uint8_t* memory) = 0;
  /// Whether pack() makes checksums. The CPU does not: its callers hash bytes while they read and write them.
  virtual bool makes_checksums() const { return false; }
  /// sums: ranges that do not overlap. Those that the device holds in one piece are filled in, others stay as they are.
  virtual void pack(std::span<const PackItem> items, std::span<Checksum> sums = {}) = 0;
  /// reports: one per item, here and below.
  virtual void unpack(std::span<const UnpackItem> items, std::span<PadReport> reports) = 0;
  virtual void compare(std::span<const CompareItem> items, std::span<CompareReport> reports) = 0;
};

struct Driver;

/// A device for the CPU with chosen_driver(), or with the given driver.
std::unique_ptr<Device> open_cpu();
std::unique_ptr<Device> open_cpu(const Driver& driver);

/// 0 without a driver or device, and in a build without CUDA.
int cuda_device_count();
bool built_with_cuda();
/// One line: "CUDA 13.0; cuda:0 NVIDIA H200", "CUDA 13.0; no CUDA driver found" or "built without CUDA".
std::string cuda_description();
/// Why cuda_device_count() is 0.
std::string cuda_missing();
/// Throws if open_cuda(index) would throw because the driver or that device is missing. Needs half of its time.
void check_cuda(int index);
/// Selects the GPU for the MoE kernels of this thread. Without a selection it is the first GPU.
void select_cuda(int index);
/// device_memory: the limit in bytes of GPU memory for data being packed, 0 for a default. At least one matrix in and
/// out must fit; copies and kernels of one call overlap only with three times that. Several Devices on one GPU always
/// overlap. If its memory is too small for all, they work one after the other.
std::unique_ptr<Device> open_cuda(int index, int64_t device_memory = 0);

}  // namespace mxfp4
