#include "src/synth/synth.h"

#include <catch2/catch.hpp>
#include <set>

#include "src/base/file.h"
#include "src/synth/fill.h"
#include "tests/support/synth_values.h"
#include "tests/support/temp_dir.h"
#include "tests/support/testdata.h"

using namespace mxfp4;
namespace fs = std::filesystem;

namespace {

SynthOptions options_for(std::string_view model, const std::string& dest, const SynthSizes& sizes, uint64_t seed = 1,
                         int threads = 2) {
  return {.model = std::string(model), .dest = dest, .sizes = sizes, .seed = seed, .threads = threads, .progress = {}};
}

/// File name -> contents.
std::map<std::string, std::string> contents(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(dir))
    files[entry.path().filename().string()] = read_text(entry.path().string(), 1 << 28);
  return files;
}

/// A checkpoint read back: tensors with their bytes.
struct ReadBack {
  Json config, index;
  std::map<std::string, std::pair<Tensor, std::string>> tensors;
  int64_t bytes = 0;

  explicit ReadBack(const std::string& dir) {
    config = parse_json(read_text(dir + "/config.json", 1 << 20), "config.json");
    index = parse_json(read_text(dir + "/model.safetensors.index.json", 1 << 28), "index");
    std::set<std::string> shards;
    for (const auto& [name, file] : index["weight_map"].items()) shards.insert(file.get<std::string>());
    Problems problems;
    for (const std::string& shard : shards) {
      const Fd fd = open_read(dir + "/" + shard);
      for (const Tensor& t : read_header(dir + "/" + shard, shard, problems).tensors) {
        CHECK(index["weight_map"].value(t.name, "") == shard);
        CHECK(t.offset * 8 % bits_of(t.dtype) == 0);  // aligned to its elements
        std::string data(size_t(t.bytes), '\0');
        fd.read(data.data(), t.bytes, t.offset);
        bytes += t.bytes;
        tensors[t.name] = {t, std::move(data)};
      }
    }
    problems.throw_if_any();
    CHECK(index["weight_map"].size() == tensors.size());
    CHECK(index["metadata"]["total_size"] == bytes);
  }
};

}  // namespace

TEST_CASE("a tiny checkpoint of every model is complete, finite and reproducible") {
  for (const SynthModel& model : synth_models()) {
    INFO(model.name);
    const TempDir dir;
    synth(options_for(model.name, dir / "a", tiny_sizes()));
    synth(options_for(model.name, dir / "b", tiny_sizes(), 1, 1));
    synth(options_for(model.name, dir / "c", tiny_sizes(), 2));
    CHECK((contents(dir / "a") == contents(dir / "b")));

    const ReadBack made(dir / "a"), other(dir / "c");
    CHECK(made.bytes < 1'200'000);
    const SynthCheckpoint checkpoint = describe_checkpoint(model.name, tiny_sizes());
    CHECK(made.config == checkpoint.config);
    REQUIRE(made.tensors.size() == checkpoint.tensors.size());
    for (const SynthTensor& t : checkpoint.tensors) {
      INFO(t.name);
      const auto& [tensor, data] = made.tensors.at(t.name);
      CHECK(tensor.dtype == t.dtype);
      CHECK(tensor.shape == t.shape);
      if (t.bytes >= 64) CHECK((data != other.tensors.at(t.name).second));
      const bool is_float = t.fill == Fill::weight || t.fill == Fill::norm || t.fill == Fill::bias;
      for (int64_t i = 0; is_float && i < t.bytes * 8 / bits_of(t.dtype); ++i) {
        const double value = float_at(tensor, data, i);
        if (!std::isfinite(value) || (t.fill == Fill::norm && (value < 0.875 || value > 1.25))) FAIL(value);
      }
    }
  }
}

TEST_CASE("large tensors are the same whichever block is made first") {
  SynthSizes sizes;
  sizes.layers = 2;
  sizes.experts = 5;
  sizes.hidden = 1024;
  sizes.intermediate = 512;
  sizes.vocab = 1000;
  const TempDir dir;
  synth(options_for("gpt-oss-20b", dir / "one", sizes, 7, 1));
  synth(options_for("gpt-oss-20b", dir / "many", sizes, 7, 5));
  CHECK((contents(dir / "one") == contents(dir / "many")));
  const ReadBack made(dir / "one");
  const auto& [tensor, data] = made.tensors.at("model.layers.1.mlp.experts.gate_up_proj_blocks");
  int64_t equal = 0;
  for (int64_t i = 0; i < fill_block; ++i) equal += data[size_t(i)] == data[size_t(fill_block + i)];
  CHECK(equal < fill_block / 100);  // one in 256 is expected
}

TEST_CASE("the destination appears whole or not at all") {
  const TempDir dir;
  fs::create_directory(dir / "empty");
  synth(options_for("gpt-oss-20b", dir / "empty/", tiny_sizes()));
  CHECK(fs::exists(dir / "empty/config.json"));
  CHECK_THROWS_WITH(synth(options_for("gpt-oss-20b", dir / "empty", tiny_sizes())),
                    Catch::StartsWith(dir / "empty: exists; "));
  CHECK_THROWS_WITH(
      synth(options_for("gpt-oss-20b", dir / "absent/sub", tiny_sizes())),
      Catch::StartsWith(dir / "absent/sub: the folder ") && Catch::EndsWith("absent does not exist; make it first"));

  SynthOptions stopped = options_for("gpt-oss-20b", dir / "stopped", tiny_sizes());
  int64_t last = 0;
  stopped.progress = [&](int64_t done, int64_t total) {
    CHECK(done > last);
    CHECK(done <= total);
    last = done;
    fail(ErrorKind::interrupted, "stopped");
  };
  CHECK_THROWS_WITH(synth(stopped), "stopped");
  CHECK(last > 0);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir / "")) ++entries;
  CHECK(entries == 1);  // "empty"; no partial directory is left
}

TEST_CASE("testdata/tiny is what synth makes") {
  const TempDir dir;
  SynthSizes sizes = tiny_sizes();
  synth(options_for("gpt-oss-20b", dir / "gpt-oss", sizes));
  sizes.experts = 3;
  sizes.intermediate = 64;
  synth(options_for("deepseek-v4-flash", dir / "deepseek-v4", sizes));
  for (const char* name : {"gpt-oss", "deepseek-v4"}) {
    const auto kept = contents(fmt::format("{}/tiny/{}", testdata(), name));
    for (const auto& [file, text] : contents(dir / name)) {
      INFO(name << "/" << file);
      REQUIRE(kept.contains(file));
      CHECK((kept.at(file) == text));
    }
  }
}
