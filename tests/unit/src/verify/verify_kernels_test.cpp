#include "src/verify/verify_kernels.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <random>
#include <set>

#include "kernels/moe/check/moe_kernel.h"
#include "kernels/moe/cuda/moe_storage.h"
#include "src/base/checksum.h"
#include "src/verify/kernel_bench.h"
#include "tests/support/layer_checkpoint.h"
#include "tests/support/program.h"
#include "tests/support/seal.h"

using namespace mxfp4;

namespace {

using Bytes = std::span<uint8_t>;

/// What packs the layers and who computes them.
struct Target {
  const char *device, *engine, *backend = "marlin", *version = "";
};
const Target on_cpu[] = {{"cpu", "vllm"}, {"cpu", "sglang"}};
const Target on_gpu[] = {{"cuda", "vllm"},
                         {"cuda", "sglang"},
                         {"cuda", "vllm", "flashinfer-cutlass", "v1"},
                         {"cuda", "vllm", "flashinfer-cutlass", "v2"},
                         {"cuda", "vllm", "triton-hopper"}};

std::string info(const Target& t) { return fmt::format("{} {} {} on {}", t.engine, t.backend, t.version, t.device); }

/// Those that this machine's GPU can compute; a warning where it has none.
std::vector<Target> gpu_targets() {
  std::vector<Target> targets;
  for (const Target& t : on_gpu) {
    const Fragment& fragment = *find_fragment(kernel_of(find_backend(t.backend, t.engine, t.version)));
    const std::string missing = cuda_kernel_missing(fragment);
    if (missing.empty())
      targets.push_back(t);
    else
      WARN("skipped: " << info(t) << ": " << missing);
  }
  return targets;
}

/// Where the tensors of a safetensors file begin.
size_t data_begin(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return 8 + length;
}

/// A checkpoint of one golden layer, and beside it another that a converter misunderstood in some way.
class Pair {
 public:
  explicit Pair(const char* file) : golden_(file), right_(golden_, dir_ / "right"), wrong_(golden_, dir_ / "wrong") {
    experts = std::stoll(golden_.metadata("experts"));
  }
  /// Changes every tensor of the misunderstood checkpoint, or of the `right` one, whose name ends so.
  template <class Change>
  void spoil(const std::string& suffix, Change change, const std::string& in = "wrong") {
    const std::string path = dir_ / in + "/model.safetensors";
    std::string text = read_text(path, 1 << 28);
    Problems problems;
    int found = 0;
    for (const Tensor& t : read_header(path, in, problems).tensors) {
      if (!t.name.ends_with(suffix)) continue;
      change(Bytes(reinterpret_cast<uint8_t*>(text.data()) + t.offset, size_t(t.bytes)), t);
      ++found;
    }
    REQUIRE(found > 0);
    write_text(path, text);
  }
  /// Names in the misunderstood checkpoint's header change places; they are equally long.
  void swap_names(const std::string& a, const std::string& b) {
    const std::string path = dir_ / "wrong/model.safetensors";
    std::string text = read_text(path, 1 << 28);
    for (size_t at = 8; at < data_begin(text); ++at) {
      if (text.compare(at, a.size(), a) == 0)
        text.replace(at, a.size(), b);
      else if (text.compare(at, b.size(), b) == 0)
        text.replace(at, b.size(), a);
    }
    write_text(path, text);
  }
  void pack(const Target& target, const std::string& gate_up = {}, int ranks = 1, int rank = -1) {
    ConvertOptions o = conversion(dir_ / "wrong", dir_ / "out", target.engine, target.backend);
    o.layout_version = target.version, o.model.gate_up = gate_up, o.tp_size = ranks, o.rank = rank;
    convert(o);
  }
  void pack_for(const Backend& backend) {
    ConvertOptions o = conversion(dir_ / "wrong", dir_ / "out", backend.engine, backend.name);
    o.layout_version = backend.layout_version;
    convert(o);
  }
  /// What the kernels alone say of OUT and the right checkpoint; empty where all is well.
  std::string kernels(const Target& target = on_cpu[0]) {
    Problems problems;
    const auto packed = open_packed(dir_ / "out", problems);
    const Checkpoint source = open_checkpoint(dir_ / "right", problems);
    REQUIRE_FALSE(problems.any());
    KernelOptions options;
    options.tokens = {1, 3};
    options.device = target.device;
    const KernelReport report = verify_kernels(*packed, 0, source, options, problems);
    CHECK(report.device == target.device);
    for (const KernelCheck& c : report.checks) all_covered = all_covered || c.covered == c.experts;
    return fmt::format("{}", fmt::join(problems.errors(), "\n"));
  }
  /// Who computes OUT where this is asked for.
  std::string device_of(const std::string& asked) {
    Problems problems;
    const auto packed = open_packed(dir_ / "out", problems);
    const Checkpoint source = open_checkpoint(dir_ / "right", problems);
    KernelOptions options;
    options.device = asked;
    return verify_kernels(*packed, 0, source, options, problems).device;
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
    const std::string sum = checksum_of(text);
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

static void find_nothing_wrong(const Target& target) {
  INFO(info(target));
  for (const char* file : {gpt_oss, deepseek}) {
    Pair pair(file);
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

static void check_ranks(const Target& target) {
  for (const char* file : {gpt_oss, deepseek})
    for (const int rank : {-1, 0, 1}) {
      Pair pair(file);
      pair.pack(target, {}, 2, rank);
      CHECK(pair.kernels(target) == "");
    }
  Pair pair(deepseek);
  pair.pack(target, {}, 2);
  const std::string first = pair.out("packed/tp2-rank0-00001.safetensors");
  std::filesystem::copy_file(first, pair.out("packed/tp2-rank1-00001.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(pair.kernels(target), Catch::Contains("stale rank: rank 1 holds what belongs to rank 0"));
}
TEST_CASE("kernels add tensor-parallel ranks up, take one alone, and name a stale one") { check_ranks(on_cpu[0]); }
TEST_CASE("kernels on a GPU add ranks up, take one alone, and name a stale one", "[gpu]") {
  for (const Target& target : gpu_targets())
    if (target.backend == std::string("marlin")) check_ranks(target);
}

/// Of bf16 values, by their exponents.
static void times_32(Bytes b, const Tensor&) {
  for (size_t at = 0; at + 1 < b.size(); at += 2) {
    const uint32_t x = b[at] | b[at + 1] << 8;
    if ((x & 0x7F80) == 0) continue;
    b[at] = uint8_t(x + (5 << 7)), b[at + 1] = uint8_t((x + (5 << 7)) >> 8);
  }
}

static void name_mistakes_of_conversion(const Target& target) {
  using Catch::Contains;
  INFO(info(target));
  const auto gpt = [&](const std::string& suffix, auto change) {
    Pair pair(gpt_oss);
    pair.spoil(suffix, change);
    pair.pack(target);
    return pair.kernels(target);
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
  Pair bias(gpt_oss);  // at 32 times its size, which the bf16 of a GPU's result does not hide
  bias.spoil("down_proj_bias", times_32, "right");
  bias.spoil("down_proj_bias", zero);
  bias.pack(target);
  CHECK_THAT(bias.kernels(target), Contains("w2's bias is missing"));
  CHECK_THAT(gpt("_bias", zero), Contains("both biases are missing"));
  CHECK_THAT(gpt("gate_up_proj_bias", swap_pairs), Contains("bias is not in the order of its rows"));

  Pair swapped(gpt_oss);
  for (const char* suffix : {"gate_up_proj_blocks", "gate_up_proj_scales", "gate_up_proj_bias"})
    swapped.spoil(suffix, swap_pairs);
  swapped.pack(target);
  CHECK_THAT(swapped.kernels(target), Contains("w1 and w3 (gate and up) are swapped"));

  Pair names(deepseek);
  names.swap_names(".w1.", ".w3.");
  names.pack(target);
  CHECK_THAT(names.kernels(target), Contains("w1 and w3 (gate and up) are swapped"));

  Pair order(gpt_oss);
  for (const char* suffix : {"_blocks", "_scales", "_bias"}) order.spoil(suffix, swap_experts);
  order.pack(target);
  CHECK_THAT(order.kernels(target), Contains("experts are in another order: expert 1 is in the place of expert 0"));

  Pair halves(gpt_oss);
  halves.pack(target, "concatenated");
  CHECK_THAT(halves.kernels(target), Contains("relative L2") && Contains("rows are pairs, but were taken for halves"));
}
TEST_CASE("kernels alone name every mistake of the conversion") {
  for (const Target& target : on_cpu) name_mistakes_of_conversion(target);
}
TEST_CASE("kernels on a GPU alone name every mistake of the conversion", "[gpu]") {
  for (const Target& target : gpu_targets()) name_mistakes_of_conversion(target);
}

/// The bytes of one version under the headers and in the manifest of the other: sizes are the same.
static void name_other_version(const char* device) {
  const Target v1{device, "vllm", "flashinfer-cutlass", "v1"}, v2{device, "vllm", "flashinfer-cutlass", "v2"};
  for (const auto& [is, said] : {std::pair{v1, v2}, std::pair{v2, v1}})
    for (const char* file : {gpt_oss, deepseek}) {
      Pair pair(file);
      pair.pack(is);
      const std::string path = pair.out("packed/packed-00001.safetensors");
      const std::string bytes = read_text(path, 1 << 28);
      std::filesystem::remove_all(pair.out(""));
      pair.pack(said);
      std::string text = read_text(path, 1 << 28);
      const size_t from = data_begin(bytes), to = data_begin(text);
      REQUIRE(bytes.size() - from == text.size() - to);
      write_text(path, text.replace(to, text.npos, bytes, from));
      CHECK_THAT(pair.kernels(said),
                 Catch::Contains(fmt::format("are those of flashinfer-sm90-{}, not of flashinfer-sm90-{}", is.version,
                                             said.version)));
    }
}
TEST_CASE("kernels name another version of the layout") { name_other_version("cpu"); }
TEST_CASE("kernels on a GPU name another version of the layout", "[gpu]") {
  if (const std::string missing = cuda_kernel_missing(*find_fragment("flashinfer-sm90-v2")); !missing.empty()) {
    WARN("skipped: " << missing);
    return;
  }
  name_other_version("cuda");
}

static void name_settings(const Target& target) {
  using Catch::Contains;
  INFO(info(target));
  const auto edited = [&](const char* file, auto change) {
    Pair pair(deepseek);
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
    Pair pair(gpt_oss);
    pair.pack(target);
    CHECK(pair.device_of("auto") == "cuda");
  }
  Pair pair(deepseek);
  pair.pack({"auto", "vllm", "vllm-cpu"});
  CHECK(pair.device_of("auto") == "cpu");
  CHECK_THROWS_WITH(pair.device_of("cuda"), Catch::Contains("kernel vllm-cpu on cuda: "));
}

TEST_CASE("what no CUDA kernel takes is refused with its reason before anything is computed") {
  MoeConfig c;
  c.experts = 8, c.hidden = c.padded_hidden = 256, c.intermediate = c.padded_intermediate = 128, c.top_k = 2;
  const MoeStorage &marlin = *find_moe_storage("marlin"), &triton = *find_moe_storage("triton-hopper-a");
  CHECK(moe_refusal(c, marlin) == "");
  const auto refusal = [&](const MoeStorage& storage, auto change) {
    MoeConfig wrong = c;
    change(wrong);
    return moe_refusal(wrong, storage);
  };
  CHECK_THAT(refusal(marlin, [](MoeConfig& w) { w.experts = 1025; }), Catch::Contains("1024 experts"));
  CHECK_THAT(refusal(marlin, [](MoeConfig& w) { w.w13_block = 8; }), Catch::Contains("not in blocks"));
  CHECK_THAT(refusal(triton, [](MoeConfig& w) { w.padded_intermediate = 96; }), Catch::Contains("64 rows"));
  CHECK_THAT(refusal(marlin, [](MoeConfig& w) { w.padded_hidden = 96; }), Catch::Contains("multiples of 64"));
  // 8 experts of 3 * 256 * 128 codes, a half and a 32nd byte each
  CHECK(moe_device_bytes(c, marlin, 0) == 8 * 3 * 256 * 128 * 17 / 32);
  CHECK(moe_device_bytes(c, marlin, 4096) > moe_device_bytes(c, marlin, 0) + 4096 * 256 * 4);
}

TEST_CASE("the floor of a time is the slower of reading weights and computing") {
  const GpuCeilings gpu{"", 4e12, 8e14};
  CHECK(floor_microseconds({1, 6, 100, 4e6, 8e6}, gpu) == Approx(1));
  CHECK(floor_microseconds({8192, 256, 100, 4e6, 8e10}, gpu) == Approx(100));
  CHECK(floor_microseconds({8192, 256, 100, 4e6, 8e10}, {"", 4e12, 0}) == Approx(1));  // no wgmma: reading alone
  KernelTimes times{"marlin", {}, {{1, 6, 2, 4e6, 8e6}}};
  CHECK_THAT(to_text({gpu, {times}}), Catch::Contains("2.0       1.0    50%   2000      4.0"));
}

TEST_CASE("times of every CUDA kernel at a shape", "[gpu]") {
  if (gpu_targets().empty()) return;
  BenchOptions o;
  o.hidden = 512, o.intermediate = 256, o.experts = 8, o.top_k = 2, o.tokens = {1, 64};
  const BenchReport report = bench_shape(o);
  CHECK(report.kernels.size() >= 1);
  for (const KernelTimes& k : report.kernels)
    for (const MoeTiming& t : k.batches) CHECK(t.microseconds > floor_microseconds(t, report.gpu));
}

TEST_CASE("bytes find a flipped bit anywhere in the packed tensors, with checksums to match") {
  for (const char* file : {gpt_oss, deepseek}) {
    Pair pair(file);
    pair.pack(on_cpu[0]);
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
      write_text(pair.out(manifest_name),
                 with_text(manifest, checksum_of(right, t, pair.experts), checksum_of(text, t, pair.experts)));
      CHECK(is_right(pair.out(""), {}, Level::files));
      CHECK_FALSE(is_right(pair.out(""), pair.out("../right")));
      write_text(pair.out(manifest_name), manifest);
    }
  }
}

TEST_CASE("the level of verify is the highest possible unless it is given") {
  Pair pair(deepseek);
  pair.pack(on_cpu[1]);
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
