#include "src/bench/predict.h"

#include <algorithm>

#include "kernels/pack/cpu/driver.h"
#include "src/bench/pack_speed.h"
#include "src/plan/plan.h"

namespace mxfp4 {

namespace {

constexpr int64_t least_bytes = 16 << 20, most_bytes = 128 << 20;  // that are written to time the disk

Amounts amounts_of(const Plan& plan) {
  Amounts a{.written = plan.file_bytes};
  a.packed = plan.packed_bytes - plan.padding_bytes;
  a.read = a.packed;
  for (const CopiedTensor& t : plan.copied) a.read += t.file ? t.source->bytes : 0;
  return a;
}

}  // namespace

RunTime predict(const Rates& rates, const Amounts& amounts) {
  return {.disk = double(amounts.read + amounts.written) / rates.disk.both,
          .processor = double(amounts.packed) / rates.pack + double(amounts.read + amounts.written) / rates.hash};
}

RunTime predict(const Plan& plan, const std::string& dir, int threads) {
  const Driver& driver = chosen_driver();
  const Layout& layout = plan.backend->parameter(Role::w13, Part::codes).layout;
  const auto speed = pack_speeds({layout}, {{driver.name, [&] { return open_cpu(driver); }}}, {1}, 3);
  const Amounts amounts = amounts_of(plan);
  const int64_t probe = std::clamp(amounts.written / 16, least_bytes, most_bytes);
  return predict(
      {.disk = disk_speed(dir, probe, threads), .pack = speed.front().pack * threads, .hash = hash_speed(1) * threads},
      amounts);
}

}  // namespace mxfp4
