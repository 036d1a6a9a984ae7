// One layer as engines have it before conversion: the same out of every set of it.
#include "src/convert/raw_layer.h"

#include <catch2/catch.hpp>

#include "src/backends/backend.h"
#include "src/backends/layout_file.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

const std::string module = "model.layers.1.mlp.experts";

std::string raw(const std::string& out, int rank = 0, int set = 0, const std::string& layer = module) {
  const RawLayerFile file = raw_layer({out, set, layer, rank});
  return {file.data.get(), file.bytes};
}

}  // namespace

TEST_CASE("every set of a model has the same raw layer, on every rank") {
  const TempDir dir;
  for (const int ranks : {1, 2}) {
    const std::string marlin = dir / fmt::format("marlin-{}", ranks);
    ConvertOptions o = conversion(tiny_gpt_oss, marlin, "vllm");
    o.tp_size = ranks;
    convert(o);
    int compared = 0;
    for (const Backend* b : backends()) {
      INFO(b->name << " " << b->layout_version << " of " << b->engine << ", " << ranks);
      if (b->rewrite) continue;
      o.out = dir / "out", o.engine = b->engine, o.backend = b->name, o.layout_version = b->layout_version;
      o.force = true;
      try {
        convert(o);
      } catch (const Error&) {
        continue;  // the backend does not support this family or size
      }
      for (int rank = 0; rank < ranks; ++rank) CHECK((raw(dir / "out", rank) == raw(marlin, rank)));
      ++compared;
    }
    CHECK(compared >= 20);
    if (ranks == 2) CHECK((raw(marlin, 0) != raw(marlin, 1)));
  }
}

TEST_CASE("values of a layout file become scales again in a raw layer") {
  const TempDir dir;
  const Backend& marlin = find_backend("marlin", "vllm", "1");
  Problems problems;
  const Checkpoint ck = open_checkpoint(tiny_gpt_oss, problems);
  const Model model = recognise(ck, {}, problems);
  Json file = Json::parse(write_layout(marlin, model, rank_share(model.layers.front(), 1)));
  Json of = Json::array();
  for (int s = 0; s < 256; ++s) of.push_back(255 - s);
  for (Json& t : file["tensors"])
    if (t["part"] == "scales") t["values"] = {{"width", 1}, {"of_scales", of}};
  write_text(dir / "file.json", file.dump());
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "vllm");
  o.layout = dir / "file.json", o.backend.clear(), o.engine.clear();
  convert(o);
  convert(conversion(tiny_gpt_oss, dir / "marlin", "vllm"));
  CHECK((raw(dir / "out") == raw(dir / "marlin")));
}

TEST_CASE("a raw layer that is not there, or is damaged, or lossy, is refused") {
  const TempDir dir;
  const std::string out = dir / "out";
  convert(conversion(tiny_gpt_oss, out, "vllm"));
  ConvertOptions o = conversion(tiny_gpt_oss, out, "vllm", "triton-hopper");
  o.add = true;
  convert(o);
  CHECK((raw(out, 0, 1) == raw(out)));
  CHECK_THROWS_WITH(raw(out, 0, 0, "model.layers.9.mlp.experts"),
                    Catch::Contains("set 0 has no layer model.layers.9.mlp.experts of rank 0"));
  CHECK_THROWS_WITH(raw(out, 3), Catch::Contains("has no layer") && Catch::Contains("of rank 3"));
  for (const int set : {-1, 2}) CHECK_THROWS_WITH(raw(out, 0, set), Catch::Contains(fmt::format("no set {}", set)));
  flip(out + "/packed/packed-00001.safetensors", 4096);
  CHECK_THROWS_WITH(raw(out, 0, 0, "model.layers.0.mlp.experts"),
                    Catch::Contains("w13_weight: does not have the checksum"));
}
