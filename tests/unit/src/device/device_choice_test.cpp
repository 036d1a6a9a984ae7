// --device: its values, and equal bytes on every device.
#include "src/device/device_choice.h"

#include <catch2/catch.hpp>

#include "src/backends/backend.h"
#include "src/synth/synth.h"
#include "tests/support/program.h"
#include "tests/support/said.h"

using namespace mxfp4;

namespace {

std::string refusal(const std::string& name) {
  return said_by([&] { choose_device({name}); });
}

/// Converts on a device; false if the backend does not support the checkpoint.
bool convert_on(const DeviceOptions& device, const Backend& b, const std::string& from, const std::string& out,
                int tp_size = 1) {
  ConvertOptions o = conversion(from, out, b.engine, b.name);
  o.layout_version = b.layout_version;
  o.device = device;
  o.tp_size = tp_size;
  try {
    convert(o);
  } catch (const Error& e) {
    CHECK(e.kind == ErrorKind::input);
    return false;
  }
  return true;
}

bool is_right_on(const std::string& device, const std::string& out, const std::string& source) {
  VerifyOptions o;
  o.out = out;
  o.source = source;
  o.level = Level::bytes;
  o.threads = 2;
  o.device.name = device;
  return verify(o);
}

void unpack_on(const std::string& device, const std::string& out, const std::string& dest) {
  UnpackOptions o;
  o.out = out;
  o.dest = dest;
  o.threads = 2;
  o.device.name = device;
  unpack(o);
}

}  // namespace

TEST_CASE("--device takes lists of GPUs and nothing else") {
  for (const char* name : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0,", "cuda:0;1", "cuda0", "CUDA", ""})
    CHECK(refusal(name).find("expected") != std::string::npos);
  CHECK(refusal("cuda:0,1,0").find("twice") != std::string::npos);
  CHECK(choose_device({"cpu"}).gpus.empty());
  CHECK_THROWS_AS(choose_device({"cuda:" + std::to_string(cuda_device_count())}), DeviceError);
}

TEST_CASE("--device auto leaves work to the CPU that it does as fast") {
  constexpr int64_t much = int64_t(10) << 30;
  CHECK(why_cpu({4, much}) == "4 threads of it are no slower than a GPU");
  CHECK(why_cpu({3, much}).empty());
  CHECK(why_cpu({1, (1 << 30) - 1}) == "a GPU does not pay for less than a GiB");
  CHECK(why_cpu({0, 1}) != "");
  CHECK(why_cpu({1, much, true}) == "it unpacks no slower than a GPU");
  CHECK(choose_device({"auto"}, PackingWork{4, much}).gpus.empty());
  CHECK(choose_device({"cpu"}, PackingWork{1, much}).why == "asked for");
}

TEST_CASE("eight threads work with each GPU, none without one") {
  CHECK(gpu_workers({}, 5) == 0);
  CHECK(gpu_workers({{0}}, 3) == 3);
  CHECK(gpu_workers({{0}}, 40) == 8);
  CHECK(gpu_workers({{0, 1}}, 40) == 16);
  CHECK(open_device({{0}}, 8, 9)->name() == open_cpu()->name());
}

TEST_CASE("a conversion on cuda gives the CPU's files with every backend", "[gpu]") {
  if (cuda_device_count() == 0) return;
  open_cuda(0);  // initialises the GPU before the first job
  const TempDir dir;
  int converted = 0;
  for (const char* name : {"gpt-oss", "deepseek-v4"})
    for (size_t i = 0; i < backends().size(); ++i) {
      const Backend* b = backends()[i];
      INFO(name << " " << b->engine << " " << b->name << " " << b->layout_version);
      const std::string source = tiny + name, id = fmt::format("-{}-{}", name, i);
      const bool done = convert_on({"cpu"}, *b, source, dir / ("cpu" + id));
      CHECK(convert_on({"cuda"}, *b, source, dir / ("cuda" + id)) == done);
      if (!done) continue;
      ++converted;
      CHECK(contents_of(dir / ("cuda" + id)) == contents_of(dir / ("cpu" + id)));
      CHECK(is_right_on("cuda", dir / ("cpu" + id), source));
      if (b->rewrite) continue;
      unpack_on("cuda", dir / ("cpu" + id), dir / ("back" + id));
      CHECK(contents_of(dir / ("back" + id)) == contents_of(source));
    }
  CHECK(converted > 20);
}

TEST_CASE("ranks and a packed source on cuda give the CPU's files", "[gpu]") {
  if (cuda_device_count() == 0) return;
  open_cuda(0);
  const TempDir dir;
  const std::string source = tiny_gpt_oss;
  const Backend &marlin = find_backend("marlin", "vllm", ""), &hopper = find_backend("triton-hopper", "vllm", "");
  REQUIRE(convert_on({"cpu"}, marlin, source, dir / "cpu", 2));
  REQUIRE(convert_on({"cuda"}, marlin, source, dir / "cuda", 2));
  CHECK(contents_of(dir / "cuda") == contents_of(dir / "cpu"));
  CHECK(is_right_on("cuda", dir / "cuda", source));
  REQUIRE(convert_on({"cpu"}, hopper, source, dir / "h"));
  REQUIRE(convert_on({"cuda"}, hopper, dir / "cuda", dir / "i"));
  CHECK(tensors_of(dir / "i") == tensors_of(dir / "h"));
}
