#include "src/verify_kernels.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <set>

#include "kernels/moe_kernel.h"
#include "src/checksum.h"
#include "tests/layer_checkpoint.h"
#include "tests/program.h"

using namespace mxfp4;

namespace {

using Bytes = std::span<uint8_t>;

/// A checkpoint of one golden layer, and beside it another that a converter misunderstood in some way.
class Pair {
 public:
  explicit Pair(const char* file) : golden_(file), right_(golden_, dir_ / "right"), wrong_(golden_, dir_ / "wrong") {
    experts = std::stoll(golden_.metadata("experts"));
  }
  /// Changes every tensor of the misunderstood checkpoint whose name ends so.
  template <class Change>
  void spoil(const std::string& suffix, Change change) {
    const std::string path = dir_ / "wrong/model.safetensors";
    std::string text = read_text(path, 1 << 28);
    Problems problems;
    int found = 0;
    for (const Tensor& t : read_header(path, "wrong", problems).tensors) {
      if (!t.name.ends_with(suffix)) continue;
      change(Bytes(reinterpret_cast<uint8_t*>(text.data()) + t.offset, size_t(t.bytes)), t);
      ++found;
    }
    REQUIRE(found > 0);
    write_text(path, text);
  }
  void pack(const std::string& engine, const std::string& gate_up = {}, int ranks = 1, int rank = -1) {
    ConvertOptions o = conversion(dir_ / "wrong", dir_ / "out", engine);
    o.model.gate_up = gate_up, o.tp_size = ranks, o.rank = rank;
    convert(o);
  }
  void pack_for(const Backend& backend) {
    ConvertOptions o = conversion(dir_ / "wrong", dir_ / "out", backend.engine, backend.name);
    o.layout_version = backend.layout_version;
    convert(o);
  }
  /// What the kernels alone say of OUT and the right checkpoint; empty where all is well.
  std::string kernels(const std::string& device = "cpu") {
    Problems problems;
    const auto packed = open_packed(dir_ / "out", problems);
    const Checkpoint source = open_checkpoint(dir_ / "right", problems);
    REQUIRE_FALSE(problems.any());
    KernelOptions options;
    options.tokens = {1, 3};
    options.device = device;
    const KernelReport report = verify_kernels(*packed, 0, source, options, problems);
    for (const KernelCheck& c : report.checks) all_covered = all_covered || c.covered == c.experts;
    return fmt::format("{}", fmt::join(problems.errors(), "\n"));
  }
  std::string out(const std::string& file) const { return dir_ / ("out/" + file); }
  int64_t experts;
  bool all_covered = false;

 private:
  TempDir dir_;
  Golden golden_;
  LayerCheckpoint right_, wrong_;
};

template <class F>
void each_byte(Bytes bytes, F change) {
  for (uint8_t& b : bytes) b = change(b);
}

/// Rows 2i and 2i + 1 of each expert change places.
void swap_pairs(Bytes bytes, const Tensor& t) {
  const int64_t rows = t.shape[0] * t.shape[1], row = t.bytes / rows;
  for (int64_t r = 0; r < rows; r += 2)
    std::swap_ranges(bytes.begin() + r * row, bytes.begin() + (r + 1) * row, bytes.begin() + (r + 1) * row);
}

/// Expert 0 and expert 1 of a stacked tensor change places.
void swap_experts(Bytes bytes, const Tensor& t) {
  const int64_t one = t.bytes / t.shape[0];
  std::swap_ranges(bytes.begin(), bytes.begin() + one, bytes.begin() + one);
}

/// Changes a file of JSON; the manifest's own checksum is made anew.
template <class Change>
void edit_json(const std::string& path, Change change) {
  Json json = parse_json(read_text(path, 1 << 28), path);
  change(json);
  const std::string zeros(32, '0');
  if (json.contains("xxh3_128")) json["xxh3_128"] = zeros;
  std::string text = json.dump();
  if (json.contains("xxh3_128")) {
    const std::string sum = to_hex(hash_bytes(text.data(), int64_t(text.size())));
    text.replace(text.find(zeros), 32, sum);
  }
  std::ofstream(path, std::ios::binary) << text;
}

/// The manifest's checksum of a packed tensor in a file: of the experts' slices.
std::string checksum_of(const std::string& file, const Tensor& t, int64_t experts) {
  std::vector<Hash> slices;
  for (int64_t e = 0; e < experts; ++e)
    slices.push_back(hash_bytes(file.data() + t.offset + e * (t.bytes / experts), t.bytes / experts));
  return to_hex(hash_of_pieces(slices));
}

const char* const gpt_oss = "layer_gpt_oss.safetensors";
const char* const deepseek = "layer_deepseek.safetensors";

}  // namespace

TEST_CASE("kernels find nothing wrong in what convert makes") {
  for (const char* file : {gpt_oss, deepseek})
    for (const char* engine : {"vllm", "sglang"}) {
      Pair pair(file);
      pair.pack(engine);
      CHECK(pair.kernels() == "");
      CHECK(pair.all_covered);
    }
}

TEST_CASE("the kernels of every backend find nothing wrong in what convert makes") {
  std::set<std::string> ran;
  for (const Backend* backend : backends())
    for (const char* file : {gpt_oss, deepseek}) {
      INFO(backend->engine << " " << backend->name << " " << backend->layout_version << " " << file);
      REQUIRE(kernel_of(*backend) != "");
      Pair pair(file);
      try {
        pair.pack_for(*backend);
      } catch (const Error&) {
        continue;  // the backend does not take this family or size
      }
      CHECK(pair.kernels() == "");
      ran.insert(kernel_of(*backend));
    }
  CHECK(ran.size() == fragments().size());
}

TEST_CASE("kernels add tensor-parallel ranks up, and take one alone") {
  for (const char* file : {gpt_oss, deepseek})
    for (const int rank : {-1, 0, 1}) {
      Pair pair(file);
      pair.pack("vllm", {}, 2, rank);
      CHECK(pair.kernels() == "");
    }
}

TEST_CASE("kernels name a stale rank") {
  Pair pair(deepseek);
  pair.pack("vllm", {}, 2);
  const std::string first = pair.out("packed/tp2-rank0-00001.safetensors");
  std::filesystem::copy_file(first, pair.out("packed/tp2-rank1-00001.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(pair.kernels(), Catch::Contains("stale rank: rank 1 holds what belongs to rank 0"));
}

TEST_CASE("kernels alone name every mistake of the conversion") {
  using Catch::Contains;
  for (const char* engine : {"vllm", "sglang"}) {
    INFO(engine);
    const auto gpt = [&](const std::string& suffix, auto change) {
      Pair pair(gpt_oss);
      pair.spoil(suffix, change);
      pair.pack(engine);
      return pair.kernels();
    };
    const auto swap_nibbles = [](Bytes b, const Tensor&) {
      each_byte(b, [](uint8_t x) { return uint8_t(x << 4 | x >> 4); });
    };
    CHECK_THAT(gpt("_blocks", swap_nibbles), Contains("nibbles of every byte are swapped"));
    CHECK_THAT(gpt("_scales", [](Bytes b, const Tensor&) { each_byte(b, [](uint8_t x) { return uint8_t(x + 1); }); }),
               Contains("2 times too large"));
    const auto value = [](uint8_t x) { return uint8_t(x < 127 ? 0 : 1 << (x - 127)); };
    CHECK_THAT(gpt("_scales", [&](Bytes b, const Tensor&) { each_byte(b, value); }), Contains("read as a number"));
    const auto number = [](uint8_t x) { return uint8_t(127 + std::lround(std::log2(double(x)))); };
    CHECK_THAT(gpt("_scales", [&](Bytes b, const Tensor&) { each_byte(b, number); }), Contains("read as a number"));
    const auto zero = [](Bytes b, const Tensor&) { each_byte(b, [](uint8_t) { return uint8_t(0); }); };
    CHECK_THAT(gpt("gate_up_proj_bias", zero), Contains("w13's bias is missing"));
    CHECK_THAT(gpt("down_proj_bias", zero), Contains("w2's bias is missing"));
    CHECK_THAT(gpt("_bias", zero), Contains("both biases are missing"));
    CHECK_THAT(gpt("gate_up_proj_bias", swap_pairs), Contains("bias is not in the order of its rows"));

    Pair swapped(gpt_oss);
    for (const char* suffix : {"gate_up_proj_blocks", "gate_up_proj_scales", "gate_up_proj_bias"})
      swapped.spoil(suffix, swap_pairs);
    swapped.pack(engine);
    CHECK_THAT(swapped.kernels(), Contains("w1 and w3 (gate and up) are swapped"));

    Pair order(gpt_oss);
    for (const char* suffix : {"_blocks", "_scales", "_bias"}) order.spoil(suffix, swap_experts);
    order.pack(engine);
    CHECK_THAT(order.kernels(), Contains("experts are in another order: expert 1 is in the place of expert 0"));
  }
}

TEST_CASE("kernels tell pairs from halves, whatever the conversion was told") {
  for (const char* engine : {"vllm", "sglang"}) {
    Pair pair(gpt_oss);
    pair.pack(engine, "concatenated");
    CHECK_THAT(pair.kernels(),
               Catch::Contains("relative L2") && Catch::Contains("rows are pairs, but were taken for halves"));
  }
}

TEST_CASE("kernels run with OUT's own settings, and name what is not the source's") {
  using Catch::Contains;
  const auto edited = [](const char* file, auto change) {
    Pair pair(deepseek);
    pair.pack("vllm");
    edit_json(pair.out(file), change);
    return pair.kernels();
  };
  CHECK_THAT(edited("config.json", [](Json& j) { j["routed_scaling_factor"] = 1.0; }),
             Contains("the routed scaling factor is missing") && Contains("config.json: routed scaling factor 1"));
  CHECK_THAT(edited("config.json", [](Json& j) { j["routed_scaling_factor"] = 2.25; }), Contains("applied twice"));
  CHECK_THAT(edited("config.json", [](Json& j) { j.erase("swiglu_limit"); }), Contains("the clamp is missing"));
  CHECK_THAT(edited(manifest_name, [](Json& j) { j["sets"][0]["model"]["routed_scaling_factor"] = 1.0; }),
             Contains("the routed scaling factor is missing"));
  CHECK_THAT(edited(manifest_name, [](Json& j) { j["sets"][0]["model"]["activation"]["limit"] = 0; }),
             Contains("the clamp is missing"));
  CHECK_THAT(edited(manifest_name, [](Json& j) { j["sets"][0]["model"]["w13_rows"]["first"] = "up"; }),
             Contains("w13_rows are blocks of 0, up first; the kernel reads blocks of 0, gate first"));
}

TEST_CASE("kernels on a GPU find nothing wrong, and name mistakes", "[gpu]") {
  if (const std::string missing = cuda_kernel_missing(*find_fragment("marlin")); !missing.empty()) {
    WARN("not run: " << missing);
    return;
  }
  for (const char* file : {gpt_oss, deepseek})
    for (const int ranks : {1, 2}) {
      Pair pair(file);
      pair.pack("vllm", {}, ranks);
      CHECK(pair.kernels("cuda") == "");
    }
  Pair nibbles(gpt_oss);
  nibbles.spoil("_blocks",
                [](Bytes b, const Tensor&) { each_byte(b, [](uint8_t x) { return uint8_t(x << 4 | x >> 4); }); });
  nibbles.pack("vllm");
  CHECK_THAT(nibbles.kernels("cuda"), Catch::Contains("nibbles of every byte are swapped"));
  Pair clamp(deepseek);
  clamp.pack("vllm");
  edit_json(clamp.out("config.json"), [](Json& j) { j.erase("swiglu_limit"); });
  CHECK_THAT(clamp.kernels("cuda"), Catch::Contains("the clamp is missing"));
}

TEST_CASE("bytes find a flipped bit anywhere in the packed tensors, with checksums to match") {
  for (const char* file : {gpt_oss, deepseek}) {
    Pair pair(file);
    pair.pack("vllm");
    const std::string path = pair.out("packed/packed-00001.safetensors");
    const std::string right = read_text(path, 1 << 28), manifest = read_text(pair.out(manifest_name), 1 << 28);
    Problems problems;
    const std::vector<Tensor> tensors = read_header(path, "packed", problems).tensors;
    std::mt19937_64 random(1);
    for (int i = 0; i < 100; ++i) {
      const Tensor& t = tensors[random() % tensors.size()];
      const int64_t at = t.offset + int64_t(random() % uint64_t(t.bytes));
      INFO(file << " " << t.name << " byte " << at - t.offset);
      std::string text = right;
      text[size_t(at)] = char(text[size_t(at)] ^ 1 << random() % 8);
      write_text(path, text);
      edit_json(pair.out(manifest_name), [&](Json& j) {
        for (Json& entry : j["sets"][0]["tensors"])
          if (entry["name"] == t.name) entry["xxh3_128"] = checksum_of(text, t, pair.experts);
      });
      CHECK(is_right(pair.out(""), {}, Level::files));
      CHECK_FALSE(is_right(pair.out(""), pair.out("../right")));
      write_text(pair.out(manifest_name), manifest);
    }
  }
}

TEST_CASE("the level of verify is the highest possible unless it is given") {
  Pair pair(deepseek);
  pair.pack("sglang");
  VerifyOptions o;
  o.out = pair.out(""), o.threads = 1, o.kernels.tokens = {1}, o.kernels.device = "cpu";
  CHECK(verify(o));
  o.level = Level::kernels;
  CHECK_THROWS_AS(verify(o), Error);  // no source
  o.source = pair.out("../right");
  CHECK(verify(o));
  o.kernels.layers = {7};
  CHECK_THROWS_AS(verify(o), Error);  // there is one layer
}
