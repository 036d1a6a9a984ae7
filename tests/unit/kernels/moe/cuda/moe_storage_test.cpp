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
