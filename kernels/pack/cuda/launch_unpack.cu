#include "kernels/pack/cuda/kernel.cuh"
#include "kernels/pack/cuda/launch.h"
#include "kernels/pack/cuda/launch_batch.h"
#include "kernels/pack/cuda/launch_units.h"

namespace mxfp4 {

void launch_unpack(std::span<const UnpackItem> items, UnitMaps& maps, PadFound* found, cudaStream_t stream) {
  std::vector<Work> work;
  for (const UnpackItem& item : items) {
    work.push_back({item.layout, item.matrix, const_cast<uint8_t*>(item.packed), found});
    found += 2;
  }
  for_batches(std::move(work), [&](const Layout& layout, Batch& batch, int count) {
    std::visit(
        [&](auto l) {
          using L = decltype(l);
          if constexpr (std::is_same_v<L, ByModes>) {
            launch_unpack_units(batch, maps.of(*l.modes), count, stream);
          } else {
            void (*paired)(Batch) = nullptr;
            if constexpr (BlockSize<L>::can_pair) paired = unpack_kernel<L, 2>;
            launch_kernel<L>(unpack_kernel<L, 1>, paired, batch, count, stream);
          }
        },
        layout);
  });
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
