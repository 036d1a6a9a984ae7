#include "src/verify/verify_kernels.h"

#include <set>

#include "src/base/checksum.h"
#include "src/packed/packed_checkpoint.h"
#include "tests/support/misread_pair.h"

using namespace mxfp4;

namespace {

/// Changes a JSON file and updates the manifest's own checksum.
template <class Change>
void edit_json(const std::string& path, Change change) {
  Json json = parse_json(read_text(path, 1 << 28), path);
  change(json);
  const std::string zeros(32, '0');
  if (json.contains("xxh3_128")) json["xxh3_128"] = zeros;
  std::string text = json.dump();
  if (json.contains("xxh3_128")) {
    const std::string sum = checksum_of(text);
    text.replace(text.find(zeros), 32, sum);
  }
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

static void find_nothing_wrong(const Target& target) {
  INFO(info(target));
  for (const char* file : {gpt_oss, deepseek}) {
    MisreadPair pair(file);
    pair.pack(target);
    CHECK(pair.kernels(target) == "");
    CHECK(pair.all_covered);
  }
}
TEST_CASE("kernels find nothing wrong in what convert makes") {
  for (const Target& target : on_cpu) find_nothing_wrong(target);
}
TEST_CASE("kernels on a GPU find nothing wrong in what convert makes", "[gpu]") {
  for (const Target& target : gpu_targets()) find_nothing_wrong(target);
}

TEST_CASE("the kernels of every backend find nothing wrong in what convert makes", "[long]") {
  std::set<std::string> ran;
  for (const Backend* backend : backends())
    for (const char* file : {gpt_oss, deepseek}) {
      INFO(backend->engine << " " << backend->name << " " << backend->layout_version << " " << file);
      REQUIRE(backend->kernel);
      MisreadPair pair(file);
      try {
        pair.pack_for(*backend);
      } catch (const Error&) {
        continue;  // the backend does not support this family or size
      }
      CHECK(pair.kernels() == "");
      ran.insert(backend->kernel->name);
    }
  // Neither family is supported by these: see cutlass_mxfp4_test.cpp and canonical_test.cpp.
  ran.insert({"cutlass-mxfp4", "canonical-bf16"});
  CHECK(ran.size() == kernel_formats().size());
}

static void check_ranks(const Target& target) {
  for (const char* file : {gpt_oss, deepseek}) {
    MisreadPair pair(file);
    pair.pack(target, 2);
    CHECK(pair.kernels(target) == "");
  }
  MisreadPair pair(deepseek);
  pair.pack(target, 2);
  const std::string first = pair.out("packed/tp2-rank0-00001.safetensors");
  std::filesystem::copy_file(first, pair.out("packed/tp2-rank1-00001.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(pair.kernels(target), Catch::Contains("stale rank: rank 1 holds what belongs to rank 0"));
}
TEST_CASE("kernels add tensor-parallel ranks up, and name a stale one") { check_ranks(on_cpu[0]); }
TEST_CASE("kernels on a GPU add ranks up, and name a stale one", "[gpu]") {
  for (const Target& target : gpu_targets())
    if (target.engine == std::string("vllm") && target.backend == std::string("marlin")) check_ranks(target);
}

static void name_settings(const Target& target) {
  using Catch::Contains;
  INFO(info(target));
  const auto edited = [&](const char* file, auto change) {
    MisreadPair pair(deepseek);
    pair.pack(target);
    edit_json(pair.out(file), change);
    return pair.kernels(target);
  };
  CHECK_THAT(edited("config.json", [](Json& j) { j["routed_scaling_factor"] = 1.0; }),
             Contains("the routed scaling factor is missing") && Contains("config.json: routed scaling factor 1"));
  CHECK_THAT(edited("config.json", [](Json& j) { j["routed_scaling_factor"] = 2.25; }), Contains("applied twice"));
  CHECK_THAT(edited("config.json", [](Json& j) { j.erase("swiglu_limit"); }), Contains("the clamp is missing"));
  CHECK_THAT(edited(manifest_name, [](Json& j) { j["sets"][0]["model"]["routed_scaling_factor"] = 1.0; }),
             Contains("the routed scaling factor is missing"));
  CHECK_THAT(edited(manifest_name, [](Json& j) { j["sets"][0]["model"]["activation"]["limit"] = 0; }),
             Contains("the clamp is missing"));
  const auto rows = [](Json& j) { return std::string(j["first"]) == "up" ? "gate" : "up"; };
  CHECK_THAT(edited(manifest_name,
                    [&](Json& j) {
                      Json& said = j["sets"][0]["model"]["w13_rows"];
                      said["first"] = rows(said);
                    }),
             Contains("w13_rows are blocks of 0, ") && Contains("; the kernel reads blocks of 0, "));
}
TEST_CASE("kernels run with OUT's own settings, and name what is not the source's") {
  for (const Target& target : on_cpu) name_settings(target);
}
TEST_CASE("kernels on a GPU run with OUT's own settings, and name what is not the source's", "[gpu]") {
  for (const Target& target : gpu_targets()) name_settings(target);
}

TEST_CASE("a GPU is taken where it takes the layer, else the CPU", "[gpu]") {
  for (const Target& target : gpu_targets()) {
    MisreadPair pair(gpt_oss);
    pair.pack(target);
    CHECK(pair.device_of("auto") == "cuda");
  }
  MisreadPair pair(deepseek);
  pair.pack({"auto", "vllm", "vllm-cpu"});
  CHECK(pair.device_of("auto") == "cpu");
  CHECK_THROWS_WITH(pair.device_of("cuda"), Catch::Contains("kernel vllm-cpu on cuda: "));
}
