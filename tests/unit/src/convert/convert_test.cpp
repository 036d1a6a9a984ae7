#include <catch2/catch.hpp>

#include "tests/support/layer_checkpoint.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

/// Parameters of a Marlin layer, and the names of their golden tensors.
struct CheckpointNames {
  const char *golden, *vllm, *sglang;
};
const CheckpointNames names[] = {{"w13", "w13_weight", "w13_weight"},
                                 {"w13_scale", "w13_weight_scale", "w13_weight_scale"},
                                 {"w13_bias", "w13_bias", "w13_weight_bias"},
                                 {"w2", "w2_weight", "w2_weight"},
                                 {"w2_scale", "w2_weight_scale", "w2_weight_scale"},
                                 {"w2_bias", "w2_bias", "w2_weight_bias"}};

void run_with_threads(const std::string& from, const std::string& to, const std::string& engine, int threads) {
  ConvertOptions o = conversion(from, to, engine);
  o.threads = threads;
  convert(o);
}

}  // namespace

TEST_CASE("a layer converted by the program equals the golden bytes") {
  for (const char* file : {"layer_gpt_oss.safetensors", "layer_deepseek.safetensors"})
    for (const std::string engine : {"vllm", "sglang"}) {
      const TempDir dir;
      const Golden golden(file);
      const LayerCheckpoint source(golden, dir / "in");
      convert(conversion(dir / "in", dir / "out", engine));
      const auto packed = tensors_of(dir / "out");
      for (const CheckpointNames& n : names) {
        INFO(file << " " << engine << " " << n.golden);
        const Tensor* want = golden.find(engine + ".marlin." + n.golden);
        const auto got = packed.find(source.module() + "." + (engine == "vllm" ? n.vllm : n.sglang));
        REQUIRE((want != nullptr) == (got != packed.end()));
        if (!want) continue;
        const auto bytes = golden.bytes(*want);
        CHECK(got->second.ends_with(std::string(bytes.begin(), bytes.end())));
        const Dtype dtype = got->first.ends_with("bias")    ? Dtype::BF16
                            : got->first.ends_with("scale") ? Dtype::F8_E8M0
                                                            : Dtype::I32;
        CHECK(got->second.starts_with(describe(dtype, want->shape)));
      }
      CHECK(is_right(dir / "out"));
      CHECK(is_right(dir / "out", dir / "in"));
    }
}

TEST_CASE("unpack gives every tensor, config and companion of the checkpoint back") {
  for (const std::string name : {"gpt-oss", "deepseek-v4"}) {
    const TempDir dir;
    convert(conversion(tiny + name, dir / "out", "vllm"));
    run_unpack(dir / "out", dir / "again");
    CHECK(contents_of(dir / "again") == contents_of(tiny + name));
    const auto before = contents_of(tiny + name), after = contents_of(dir / "again");
    CHECK(before.size() == after.size());
    for (const auto& [file, text] : before)
      if (!file.ends_with(".safetensors")) CHECK(after.at(file) == text);
  }
}

TEST_CASE("the same bytes with one and two threads, and twice") {
  const TempDir dir;
  run_with_threads(tiny_gpt_oss, dir / "a", "sglang", 1);
  run_with_threads(tiny_gpt_oss, dir / "b", "sglang", 2);
  run_with_threads(tiny_gpt_oss, dir / "c", "sglang", 2);
  CHECK(contents_of(dir / "a") == contents_of(dir / "b"));
  CHECK(contents_of(dir / "b") == contents_of(dir / "c"));
}

TEST_CASE("verify finds a flipped bit anywhere in any file") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  REQUIRE(is_right(dir / "out", {}, Level::files));
  for (const auto& [name, text] : contents_of(dir / "out")) {
    if (name == "mxfp4-pack.json") continue;
    for (const size_t at : {size_t(0), text.size() / 3, text.size() / 2, text.size() - 1}) {
      INFO(name << " byte " << at);
      flip(dir / ("out/" + name), int64_t(at));
      bool found = false;
      try {
        found = !is_right(dir / "out", {}, Level::files);
      } catch (const Error&) {
        found = true;  // the header cannot be read
      }
      CHECK(found);
      flip(dir / ("out/" + name), int64_t(at));
    }
  }
  CHECK(is_right(dir / "out", {}, Level::files));
  flip(dir / "out/mxfp4-pack.json", 500);
  CHECK_THROWS_AS(is_right(dir / "out", {}, Level::files), Error);
}

TEST_CASE("an output is not made where it may not be") {
  const TempDir dir;
  std::filesystem::copy(tiny_gpt_oss, dir / "in", std::filesystem::copy_options::recursive);
  CHECK_THROWS_AS(convert(conversion(dir / "in", dir / "in", "vllm")), Error);
  CHECK_THROWS_AS(convert(conversion(dir / "in", dir / "in/out", "vllm")), Error);
  std::filesystem::create_directory_symlink(dir / "in", dir / "link");
  CHECK_THROWS_AS(convert(conversion(dir / "in", dir / "link", "vllm")), Error);
  CHECK_THROWS_AS(convert(conversion(dir / "in", dir / "link/out", "vllm")), Error);
  std::filesystem::create_directory(dir / "mine");
  std::ofstream(dir / "mine/file") << "not ours";
  CHECK_THROWS_AS(convert(conversion(dir / "in", dir / "mine", "vllm")), Error);
  CHECK(contents_of(dir / "in") == contents_of(tiny_gpt_oss));
  CHECK(contents_of(dir / "mine").size() == 1);
}

TEST_CASE("--force replaces what this tool made and nothing else") {
  const TempDir dir;
  convert(conversion(tiny_gpt_oss, dir / "out", "vllm"));
  const auto vllm = contents_of(dir / "out");
  ConvertOptions o = conversion(tiny_gpt_oss, dir / "out", "sglang");
  CHECK_THROWS_AS(convert(o), Error);
  o.force = true;
  convert(o);
  CHECK(contents_of(dir / "out") != vllm);
  CHECK(is_right(dir / "out", tiny_gpt_oss));
  std::ofstream(dir / "out/notes.txt") << "the user's";
  CHECK_THROWS_AS(convert(o), Error);
  CHECK(contents_of(dir / "out").count("notes.txt") == 1);
}
