// Buffers of a broken device.
#include "src/device/pipeline.h"

#include <catch2/catch.hpp>

using namespace mxfp4;

namespace {

/// Imitates a GPU after a fault: every later call fails.
struct Broken final : Device {
  uint8_t memory[16];
  std::string name() const override { return "broken"; }
  uint8_t* allocate(int64_t) override { return memory; }
  void release(uint8_t*) override { throw DeviceError("an earlier fault"); }
  void pack(std::span<const PackItem>, std::span<Checksum>) override {}
  void unpack(std::span<const UnpackItem>, std::span<PadReport>) override {}
  void compare(std::span<const CompareItem>, std::span<CompareReport>) override {}
};

}  // namespace

TEST_CASE("a device that cannot release memory any more does not end the program") {
  Broken device;
  const auto fail = [&] {
    Buffer buffer(device);
    buffer.reserve(8);
    throw DeviceError("the fault itself");
  };
  CHECK_THROWS_WITH(fail(), "the fault itself");
}
