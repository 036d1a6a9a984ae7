#include "src/convert.h"

#include <catch2/catch.hpp>

#include "src/log.h"
#include "src/unpack.h"
#include "src/verify.h"
#include "tests/layer_checkpoint.h"
#include "tests/temp_dir.h"

using namespace mxfp4;

namespace {

/// Parameters of a Marlin layer by the golden tensor's name.
struct Names {
  const char *golden, *vllm, *sglang;
};
const Names names[] = {{"w13", "w13_weight", "w13_weight"},
                       {"w13_scale", "w13_weight_scale", "w13_weight_scale"},
                       {"w13_bias", "w13_bias", "w13_weight_bias"},
                       {"w2", "w2_weight", "w2_weight"},
                       {"w2_scale", "w2_weight_scale", "w2_weight_scale"},
                       {"w2_bias", "w2_bias", "w2_weight_bias"}};

struct Quiet {
  Quiet() { set_verbosity(Verbosity::quiet); }
};

void run_convert(const std::string& from, const std::string& to, const std::string& engine, int threads = 2) {
  ConvertOptions o;
  o.checkpoint = from, o.out = to, o.backend = "marlin", o.engine = engine, o.threads = threads;
  convert(o);
}

bool is_right(const std::string& out, const std::string& source = {}, Level level = Level::bytes) {
  VerifyOptions o;
  o.out = out, o.source = source, o.level = level, o.threads = 2;
  return verify(o);
}

void run_unpack(const std::string& out, const std::string& dest) {
  UnpackOptions o;
  o.out = out, o.dest = dest, o.threads = 2;
  unpack(o);
}

/// Every tensor of a directory's safetensors files: name -> dtype, shape and bytes.
std::map<std::string, std::string> tensors_of(const std::string& dir) {
  std::map<std::string, std::string> out;
  for (const auto& [name, text] : contents_of(dir)) {
    if (!name.ends_with(".safetensors") || name.find("canary") != name.npos) continue;
    Problems problems;
    for (const Tensor& t : read_header(dir + "/" + name, name, problems).tensors)
      out[t.name] = describe(t.dtype, t.shape) + text.substr(size_t(t.offset), size_t(t.bytes));
    problems.throw_if_any();
  }
  return out;
}

/// Flips one bit of a byte in a file.
void flip(const std::string& path, int64_t at) {
  std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(at);
  const char c = char(f.get() ^ 1);
  f.seekp(at);
  f.put(c);
}

const std::string tiny = std::string(MXFP4_TESTDATA) + "/tiny/";

}  // namespace

TEST_CASE("a layer converted by the program equals the golden bytes") {
  const Quiet quiet;
  for (const char* file : {"layer_gpt_oss.safetensors", "layer_deepseek.safetensors"})
    for (const std::string engine : {"vllm", "sglang"}) {
      const TempDir dir;
      const Golden golden(file);
      const LayerCheckpoint source(golden, dir / "in");
      run_convert(dir / "in", dir / "out", engine);
      const auto packed = tensors_of(dir / "out");
      for (const Names& n : names) {
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
  const Quiet quiet;
  for (const std::string name : {"gpt-oss", "deepseek-v4"}) {
    const TempDir dir;
    run_convert(tiny + name, dir / "out", "vllm");
    run_unpack(dir / "out", dir / "again");
    CHECK(tensors_of(dir / "again") == tensors_of(tiny + name));
    const auto before = contents_of(tiny + name), after = contents_of(dir / "again");
    CHECK(before.size() == after.size());
    for (const auto& [file, text] : before)
      if (!file.ends_with(".safetensors")) CHECK(after.at(file) == text);
  }
}

TEST_CASE("the same bytes with one and two threads, and twice") {
  const Quiet quiet;
  const TempDir dir;
  run_convert(tiny + "gpt-oss", dir / "a", "sglang", 1);
  run_convert(tiny + "gpt-oss", dir / "b", "sglang", 2);
  run_convert(tiny + "gpt-oss", dir / "c", "sglang", 2);
  CHECK(contents_of(dir / "a") == contents_of(dir / "b"));
  CHECK(contents_of(dir / "b") == contents_of(dir / "c"));
}

TEST_CASE("verify finds a flipped bit anywhere in any file") {
  const Quiet quiet;
  const TempDir dir;
  run_convert(tiny + "gpt-oss", dir / "out", "vllm");
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
        found = true;  // a header that can no longer be read
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
  const Quiet quiet;
  const TempDir dir;
  std::filesystem::copy(tiny + "gpt-oss", dir / "in", std::filesystem::copy_options::recursive);
  CHECK_THROWS_AS(run_convert(dir / "in", dir / "in", "vllm"), Error);
  CHECK_THROWS_AS(run_convert(dir / "in", dir / "in/out", "vllm"), Error);
  std::filesystem::create_directory_symlink(dir / "in", dir / "link");
  CHECK_THROWS_AS(run_convert(dir / "in", dir / "link", "vllm"), Error);
  CHECK_THROWS_AS(run_convert(dir / "in", dir / "link/out", "vllm"), Error);
  std::filesystem::create_directory(dir / "mine");
  std::ofstream(dir / "mine/file") << "not ours";
  CHECK_THROWS_AS(run_convert(dir / "in", dir / "mine", "vllm"), Error);
  CHECK(contents_of(dir / "in") == contents_of(tiny + "gpt-oss"));
  CHECK(contents_of(dir / "mine").size() == 1);
}

TEST_CASE("--force replaces what this tool made and nothing else") {
  const Quiet quiet;
  const TempDir dir;
  run_convert(tiny + "gpt-oss", dir / "out", "vllm");
  const auto vllm = contents_of(dir / "out");
  ConvertOptions o;
  o.checkpoint = tiny + "gpt-oss", o.out = dir / "out", o.backend = "marlin", o.engine = "sglang";
  CHECK_THROWS_AS(convert(o), Error);
  o.force = true;
  convert(o);
  CHECK(contents_of(dir / "out") != vllm);
  CHECK(is_right(dir / "out", tiny + "gpt-oss"));
  std::ofstream(dir / "out/notes.txt") << "the user's";
  CHECK_THROWS_AS(convert(o), Error);
  CHECK(contents_of(dir / "out").count("notes.txt") == 1);
}
