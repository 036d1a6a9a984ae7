#include "src/verify/kernel_bench.h"

#include "kernels/moe/cuda/moe_storage.h"
#include "tests/support/misread_pair.h"

using namespace mxfp4;

TEST_CASE("what no CUDA kernel takes is refused with its reason before anything is computed") {
  MoeConfig c;
  c.experts = 8;
  c.hidden = c.padded_hidden = 256;
  c.intermediate = c.padded_intermediate = 128;
  c.top_k = 2;
  const KernelFormat &marlin = kernel_format("marlin"), &triton = kernel_format("triton-hopper-a");
  CHECK(moe_refusal(c, marlin) == "");
  const auto refusal = [&](const KernelFormat& format, auto change) {
    MoeConfig wrong = c;
    change(wrong);
    return moe_refusal(wrong, format);
  };
  CHECK_THAT(refusal(marlin, [](MoeConfig& w) { w.experts = 1025; }), Catch::Contains("1024 experts"));
  CHECK_THAT(refusal(marlin, [](MoeConfig& w) { w.w13_block = 8; }), Catch::Contains("not in blocks"));
  CHECK_THAT(refusal(triton, [](MoeConfig& w) { w.padded_intermediate = 96; }), Catch::Contains("64 rows"));
  CHECK_THAT(refusal(marlin, [](MoeConfig& w) { w.padded_hidden = 96; }), Catch::Contains("multiples of 64"));
  // 8 experts of 3 * 256 * 128 codes, a half and a 32nd byte each
  CHECK(moe_device_bytes(c, marlin, 0) == 8 * 3 * 256 * 128 * 17 / 32);
  CHECK(moe_device_bytes(c, marlin, 4096) > moe_device_bytes(c, marlin, 0) + 4096 * 256 * 4);
}

TEST_CASE("the floor of a time is the slower of reading weights and computing") {
  const GpuCeilings gpu{"", 4e12, 8e14};
  CHECK(floor_microseconds({1, 6, 100, 4e6, 8e6}, gpu) == Approx(1));
  CHECK(floor_microseconds({8192, 256, 100, 4e6, 8e10}, gpu) == Approx(100));
  CHECK(floor_microseconds({8192, 256, 100, 4e6, 8e10}, {"", 4e12, 0}) == Approx(1));  // no wgmma: reading alone
  KernelTimes times{"marlin", {}, {{1, 6, 2, 4e6, 8e6}}};
  CHECK_THAT(to_text({gpu, {times}}), Catch::Contains("2.0       1.0    50%   2000      4.0"));
}

TEST_CASE("times of every CUDA kernel at a shape", "[gpu]") {
  if (gpu_targets().empty()) return;
  BenchOptions o;
  o.hidden = 512;
  o.intermediate = 256;
  o.experts = 8;
  o.top_k = 2;
  o.tokens = {1, 64};
  const BenchReport report = bench_shape(o);
  CHECK(report.kernels.size() >= 1);
  for (const KernelTimes& k : report.kernels)
    for (const MoeTiming& t : k.batches) CHECK(t.microseconds > floor_microseconds(t, report.gpu));
}
