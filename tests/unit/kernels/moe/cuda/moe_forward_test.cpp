// The forward as an engine calls it: on addresses, with a map of experts and a workspace. Memory is page-locked, which
// GPU and host both reach. Skipped without a GPU.
#include "kernels/moe/cuda/moe_forward.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/moe/moe_compare.h"
#include "kernels/moe/moe_inputs.h"
#include "kernels/moe/moe_reference.h"
#include "kernels/moe/routing.h"
#include "tests/support/random_layer.h"

using namespace mxfp4;

namespace {

/// Page-locked copies of host data, until the end of a scope.
class Locked {
 public:
  ~Locked() {
    for (uint8_t* p : memory_) gpu_->release(p);
  }
  uint8_t* room(size_t bytes) {
    memory_.push_back(gpu_->allocate(int64_t(round_up(int64_t(bytes), 4096) + 4096)));
    std::memset(memory_.back(), 0xff, bytes);  // what nothing writes is NaN
    return memory_.back();
  }
  template <class T>
  const T* copy(const std::vector<T>& from) {
    if (from.empty()) return nullptr;
    uint8_t* to = room(from.size() * sizeof(T));
    std::memcpy(to, from.data(), from.size() * sizeof(T));
    return reinterpret_cast<const T*>(to);
  }

 private:
  std::unique_ptr<Device> gpu_ = open_cuda(0);
  std::vector<uint8_t*> memory_;
};

/// Experts of a layer of which a rank has some: every third is another rank's.
struct Shared {
  Shared(const RandomLayer& layer, bool with_map) {
    for (int32_t e = 0, own = 0; own < layer.config.experts; ++e) map.push_back(with_map && e % 3 == 1 ? -1 : own++);
    if (!with_map) map.clear();
  }
  int64_t experts(const RandomLayer& layer) const { return map.empty() ? layer.config.experts : int64_t(map.size()); }
  Routing own(Routing all) const {
    for (int32_t& id : all.ids)
      if (!map.empty()) id = map[size_t(id)];
    return all;
  }
  std::vector<int32_t> map;
};

struct Case {
  const RandomLayer& layer;
  const SizedPacking& packing;
  int top_k;
  bool with_map;
};

/// A rank's layer in an engine.
class Engine {
 public:
  explicit Engine(const Case& given)
      : layer_(given.layer),
        shared_(given.layer, given.with_map),
        config_(config_of(given.layer, given.packing)),
        format_(kernel_format(given.packing.format)) {
    const PackedRandom bytes(given.layer, given.packing, config_);
    packed_.w13 = locked_.copy(bytes.w13), packed_.w13_scale = locked_.copy(bytes.w13_scale);
    packed_.w2 = locked_.copy(bytes.w2), packed_.w2_scale = locked_.copy(bytes.w2_scale);
    packed_.w13_bias = locked_.copy(bytes.w13_bias), packed_.w2_bias = locked_.copy(bytes.w2_bias);
    config_.top_k = given.top_k;
    config_.hidden = config_.padded_hidden;
  }

  Routing routing(int64_t tokens, uint64_t seed) const {
    RouterRule rule;
    rule.experts = shared_.experts(layer_);
    rule.top_k = config_.top_k;
    return route_random(rule, tokens, seed);
  }
  /// With the rank's own numbers of experts.
  Routing own(const Routing& r) const { return shared_.own(r); }
  int64_t workspace(int64_t tokens) const { return open()->workspace_bytes(tokens); }

  /// [tokens][hidden], computed in a workspace for `at_once` tokens. Ids are the numbers of all ranks' experts.
  std::vector<float> run(const std::vector<float>& x, const Routing& r, int64_t at_once) const {
    const int64_t hidden = layer_.config.hidden, columns = config_.hidden, bytes = workspace(at_once);
    std::vector<uint16_t> padded(size_t(r.tokens * columns));
    for (int64_t i = 0; i < r.tokens * hidden; ++i)
      padded[size_t(i / hidden * columns + i % hidden)] = uint16_t(std::bit_cast<uint32_t>(x[size_t(i)]) >> 16);
    Locked batch;
    uint8_t* const out = batch.room(padded.size() * 2);
    open()->run({r.tokens, batch.copy(padded), batch.copy(r.ids), batch.copy(r.weights), batch.copy(shared_.map),
                 int64_t(shared_.map.size()), out, batch.room(size_t(bytes)), bytes},
                nullptr);  // its end waits
    std::vector<float> result;
    int64_t leaks = 0;
    for (int64_t i = 0; i < r.tokens * columns; ++i) {
      uint16_t bits;
      std::memcpy(&bits, out + 2 * i, 2);
      const float value = std::bit_cast<float>(uint32_t(bits) << 16);
      if (i % columns < hidden)
        result.push_back(value);
      else
        leaks += value != 0;
    }
    CHECK(leaks == 0);
    return result;
  }

 private:
  std::unique_ptr<ResidentMoe> open() const { return open_moe(config_, format_, packed_, 0); }

  const RandomLayer& layer_;
  Shared shared_;
  MoeConfig config_;
  const KernelFormat& format_;
  mutable Locked locked_;
  PackedMoe packed_;
};

bool skipped() {
  const std::string missing = resident_moe_missing(0);
  if (!missing.empty()) WARN("skipped: " << missing);
  return !missing.empty();
}

void check_batch(const RandomLayer& layer, const Engine& engine, int64_t tokens) {
  const Routing all = engine.routing(tokens, uint64_t(tokens) + 1), own = engine.own(all);
  const std::vector<float> x = tokens ? moe_inputs(layer.config, layer.source, own, 4) : std::vector<float>();
  const std::vector<float> got = engine.run(x, all, std::max<int64_t>(tokens, 1));
  CAPTURE(tokens);
  REQUIRE(got.size() == x.size());
  CHECK(engine.run(x, all, std::max<int64_t>(tokens, 1)) == got);
  if (std::all_of(own.ids.begin(), own.ids.end(), [](int32_t id) { return id < 0; })) {
    CHECK(got == std::vector<float>(got.size()));  // no token has an expert of this rank
    return;
  }
  const std::vector<double> reference = moe_reference(layer.config, layer.source, x, own).out;
  const Comparison result = compare(reference, got, tokens < 16 ? 3e-3 : 2.6e-3);
  CAPTURE(result.relative_l2, result.not_finite);
  CHECK(result.right());
}

const char* const formats[] = {"marlin", "triton-hopper-a", "triton-hopper-c"};
const SizedPacking& packing_for(const std::string& format) {
  for (const SizedPacking& p : sized_packings)
    if (p.format == format) return p;
  throw std::invalid_argument(format);
}

}  // namespace

TEST_CASE("resident MoE: a build or machine without GPU says so", "[moe]") {
  if (cuda_device_count() > 0) return;
  CHECK(resident_moe_missing(0) != "");
  CHECK_THROWS_WITH(open_moe({.experts = 2, .hidden = 256, .intermediate = 128}, kernel_format("marlin"), {}, 0),
                    Catch::Contains("CUDA"));
}

TEST_CASE("resident MoE: every number of tokens and of experts of a token", "[gpu][moe]") {
  if (skipped()) return;
  const bool gpt_oss = GENERATE(true, false), biases = GENERATE(true, false);
  const LayerSizes sizes = gpt_oss ? LayerSizes{320, 352} : LayerSizes{256, 192};
  const RandomLayer layer(8, sizes, gpt_oss, biases);
  for (const char* format : formats)
    for (int top_k = 1; top_k <= 8; ++top_k) {
      const bool with_map = top_k % 2 == 0 || top_k == 1;
      const Engine engine({layer, packing_for(format), top_k, with_map});
      CAPTURE(gpt_oss, biases, format, top_k);
      for (const int64_t tokens : {1, 9, 65}) check_batch(layer, engine, tokens);
      if (top_k == 4)
        for (const int64_t tokens : {0, 2, 7, 8, 63, 64, 300, 2048}) check_batch(layer, engine, tokens);
    }
}

TEST_CASE("resident MoE: small, for compute-sanitizer", "[gpu][moe][small]") {
  if (skipped()) return;
  const RandomLayer layer(8, {320, 352}, true, true);
  for (const char* format : formats) {
    const Engine engine({layer, packing_for(format), 4, true});
    for (const int64_t tokens : {1, 9, 30, 60, 200}) check_batch(layer, engine, tokens);  // every kernel
  }
}

TEST_CASE("resident MoE: a smaller workspace computes equal parts", "[gpu][moe]") {
  if (skipped()) return;
  const RandomLayer layer(8, {320, 352}, true, true);
  const Engine engine({layer, packing_for(GENERATE(as<std::string>(), "marlin", "triton-hopper-a")), 4, true});
  const Routing all = engine.routing(300, 1);
  const std::vector<float> x = moe_inputs(layer.config, layer.source, engine.own(all), 4);
  const std::vector<float> parts = engine.run(x, all, 120), whole = engine.run(x, all, 300);
  for (int64_t first = 0; first < 300; first += 100) {
    const auto part = [&](auto& of, int64_t width) {
      return std::vector(of.begin() + first * width, of.begin() + (first + 100) * width);
    };
    const Routing some{100, 4, part(all.ids, 4), part(all.weights, 4)};
    CHECK(engine.run(part(x, 320), some, 100) == part(parts, 320));
  }
  CHECK(compare(std::vector<double>(whole.begin(), whole.end()), parts, 1e-2).right());
  CHECK(engine.workspace(300) > 2 * engine.workspace(120));
  CHECK_THROWS_AS(engine.run(x, all, 0), std::invalid_argument);
}

TEST_CASE("resident MoE: a token's bits do not depend on the other tokens", "[gpu][moe]") {
  if (skipped()) return;
  const RandomLayer layer(8, {320, 352}, true, true);
  const Engine engine({layer, packing_for(GENERATE(as<std::string>(), "marlin", "triton-hopper-a")), 4, false});
  for (const int64_t tokens : {2, 8, 16, 40, 75, 130, 300, 2048}) {
    const Routing all = engine.routing(tokens, 1);
    Routing others = engine.routing(tokens, 2);
    std::vector<float> x = moe_inputs(layer.config, layer.source, all, 4),
                       y = moe_inputs(layer.config, layer.source, others, 5);
    const int64_t kept = tokens / 2;
    std::copy_n(x.begin() + kept * 320, 320, y.begin() + kept * 320);
    std::copy_n(all.ids.begin() + kept * 4, 4, others.ids.begin() + kept * 4);
    std::copy_n(all.weights.begin() + kept * 4, 4, others.weights.begin() + kept * 4);
    const std::vector<float> a = engine.run(x, all, tokens), b = engine.run(y, others, tokens);
    CAPTURE(tokens);
    CHECK(std::equal(a.begin() + kept * 320, a.begin() + (kept + 1) * 320, b.begin() + kept * 320));
    CHECK(a != b);
  }
}
