#include <algorithm>
#include <catch2/catch.hpp>

#include "src/plan/plan.h"
#include "src/synth/describe.h"
#include "tests/support/layer_checkpoint.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

ConvertOptions split(ConvertOptions o, int size) {
  o.tp_size = size;
  return o;
}

}  // namespace

TEST_CASE("tensor-parallel ranks equal the golden bytes") {
  const TempDir dir;
  const Golden golden("layer_gpt_oss.safetensors");
  const LayerCheckpoint source(golden, dir / "in");
  int compared = 0;
  for (const int size : {2, 4}) {
    const std::string out = dir / ("tp" + std::to_string(size));
    convert(split(conversion(dir / "in", out, "vllm"), size));
    for (int rank = 0; rank < size; ++rank) {
      const auto tensors = tensors_of_file(fmt::format("{}/packed/tp{}-rank{}-00001.safetensors", out, size, rank));
      for (const auto& [parameter, name] : std::map<std::string, std::string>{{"w13_weight", "w13"},
                                                                              {"w13_weight_scale", "w13_scale"},
                                                                              {"w13_bias", "w13_bias"},
                                                                              {"w2_weight", "w2"},
                                                                              {"w2_weight_scale", "w2_scale"},
                                                                              {"w2_bias", "w2_bias"}}) {
        INFO("tp " << size << " rank " << rank << " " << name);
        const Tensor* want = golden.find(fmt::format("vllm.marlin.tp{}.rank{}.{}", size, rank, name));
        REQUIRE(want);
        const auto bytes = golden.bytes(*want);
        CHECK(tensors.at(source.module() + "." + parameter).ends_with(std::string(bytes.begin(), bytes.end())));
        ++compared;
      }
    }
    CHECK(is_right(out));
    CHECK(is_right(out, dir / "in"));
  }
  CHECK(compared == 36);
}

TEST_CASE("from one packed form to another gives the bytes of converting the source") {
  for (const std::string name : {"gpt-oss", "deepseek-v4"}) {
    const TempDir dir;
    convert(conversion(tiny + name, dir / "sglang", "sglang"));
    convert(split(conversion(tiny + name, dir / "direct", "vllm"), 2));
    convert(split(conversion(dir / "sglang", dir / "packed", "vllm"), 2));
    CHECK(contents_of(dir / "direct") == contents_of(dir / "packed"));
    convert(conversion(dir / "packed", dir / "back", "sglang"));
    CHECK(contents_of(dir / "back") == contents_of(dir / "sglang"));
  }
}

TEST_CASE("each expert's bytes are independent of the others") {
  const TempDir dir;
  const Golden golden("layer_gpt_oss.safetensors");
  const LayerCheckpoint source(golden, dir / "in");
  convert(conversion(dir / "in", dir / "out", "vllm"));
  auto bytes = read_text(dir / "in/model-1.safetensors", 1 << 26);
  Problems problems;
  for (const Tensor& t : read_header(dir / "in/model-1.safetensors", "in", problems).tensors)
    if (t.shape.size() > 1 && t.name.find("router") == t.name.npos)  // change expert 0 everywhere
      for (int64_t i = 0; i < t.bytes / t.shape[0]; ++i) bytes[size_t(t.offset + i)] ^= 1;
  write_text(dir / "in/model-1.safetensors", bytes);
  convert(conversion(dir / "in", dir / "changed", "vllm"));
  const auto before = tensors_of(dir / "out"), after = tensors_of(dir / "changed");
  for (const auto& [name, a] : before) {
    if (name.find("experts") == name.npos) continue;
    const std::string& b = after.at(name);
    INFO(name);
    const size_t head = a.find(']') + 1, half = head + (a.size() - head) / 2;
    CHECK(a.substr(0, half) != b.substr(0, half));
    CHECK(a.substr(half) == b.substr(half));
  }
}
