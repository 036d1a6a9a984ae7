// Weights that an engine keeps in the checkpoint's layout.
#include <catch2/catch.hpp>

#include "src/backends/select.h"
#include "tests/support/layer_checkpoint.h"
#include "tests/support/program.h"

using namespace mxfp4;

TEST_CASE("vLLM's emulation of Quark holds the checkpoint's rows, padded to 32") {
  const TempDir dir;
  write_synth("kimi-k2.5-quark", dir / "in", {.layers = 2, .experts = 2, .hidden = 64, .intermediate = 96});
  ConvertOptions c = conversion(dir / "in", dir / "out", "vllm", "canonical");
  c.engine_version = "0.31.0";
  convert(c);
  const auto in = tensors_of(dir / "in"), out = tensors_of(dir / "out");
  const auto bytes = [](const std::string& tensor) { return tensor.substr(tensor.find(']') + 1); };
  std::string codes;
  for (const char* part : {".gate_proj", ".up_proj"})
    for (const auto& [name, tensor] : in)
      if (name.ends_with(".experts.0" + std::string(part) + ".weight")) codes += bytes(tensor);
  int compared = 0;
  for (const auto& [name, tensor] : out)
    if (name.ends_with("w13_weight")) {
      CHECK(bytes(tensor).starts_with(codes));
      ++compared;
    }
  CHECK(compared == 1);
  CHECK(is_right(dir / "out", dir / "in", Level::kernels));
  c.engine_version = "0.32.0", c.force = true;
  CHECK_THROWS_WITH(convert(c), Catch::Contains("vllm 0.32.0 has no backend canonical"));
}
