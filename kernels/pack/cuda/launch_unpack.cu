#include "kernels/pack/cuda/kernel.cuh"
#include "kernels/pack/cuda/launch.h"
#include "kernels/pack/cuda/launch_batch.h"

namespace mxfp4 {
namespace {

struct Kernels {
  template <class Form, int bytes>
  static PlanKernel of() {
    return unpack_kernel<Form, bytes>;
  }
};

}  // namespace

void launch_unpack(std::span<const UnpackItem> items, Plans& plans, PadFound* found, cudaStream_t stream) {
  std::vector<Work> work;
  for (const UnpackItem& item : items) {
    work.push_back({item.layout, item.matrix, const_cast<uint8_t*>(item.packed), found});
    found += 2;
  }
  launch_all<Kernels>(std::move(work), plans, stream);
}

PadReport pad_report(const PadFound& pads, const PadFound& copies, int64_t width) {
  PadReport report;
  report.wrong = int64_t(pads.wrong);
  if (copies.wrong > 0) report.copies = {int64_t(copies.wrong), int64_t(~copies.first >> 16)};
  if (report.wrong == 0) return report;
  const unsigned long long first = ~pads.first;
  const int64_t place = int64_t(first >> 16);
  report.n = place / width;
  report.b = place % width;
  report.is = uint8_t(first >> 8);
  report.expected = uint8_t(first);
  return report;
}

}  // namespace mxfp4
