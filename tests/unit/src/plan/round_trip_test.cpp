// Plans, packs and unpacks with every backend in memory: over shapes, tensor-parallel sizes and seeds, for every code
// with every scale byte, and by the backend's layout file.
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "src/backends/backend.h"
#include "src/backends/layout_file.h"
#include "src/plan/pieces.h"
#include "src/plan/transfer.h"

using namespace mxfp4;

namespace {

/// A checkpoint of one layer without data: GPT-OSS's stacked tensors, or DeepSeek-V4's separate tensors.
Checkpoint made(bool gpt_oss, int64_t hidden, int64_t intermediate, int64_t experts) {
  Checkpoint ck;
  ck.shards.push_back({"model.safetensors", "", {}});
  const auto add = [&](const std::string& name, Dtype dtype, Dims shape) {
    const int64_t bytes = tensor_bytes(dtype, shape);
    ck.tensors.push_back({name, dtype, std::move(shape), 0, 0, bytes});
  };
  const int64_t e = experts, h = hidden, i = intermediate;
  if (gpt_oss) {
    ck.config = {{"model_type", "gpt_oss"}, {"quantization_config", {{"quant_method", "mxfp4"}}}};
    const std::string module = "model.layers.0.mlp.experts.";
    add(module + "down_proj_bias", Dtype::BF16, {e, h});
    add(module + "down_proj_blocks", Dtype::U8, {e, h, i / 32, 16});
    add(module + "down_proj_scales", Dtype::U8, {e, h, i / 32});
    add(module + "gate_up_proj_bias", Dtype::BF16, {e, 2 * i});
    add(module + "gate_up_proj_blocks", Dtype::U8, {e, 2 * i, h / 32, 16});
    add(module + "gate_up_proj_scales", Dtype::U8, {e, 2 * i, h / 32});
    add("model.layers.0.mlp.router.weight", Dtype::BF16, {e, h});
  } else {
    ck.config = {{"model_type", "deepseek_v4"}, {"quantization_config", {{"quant_method", "fp8"}}}};
    for (int64_t x = 0; x < e; ++x)
      for (const char* proj : {"w1", "w2", "w3"}) {
        const bool down = proj[1] == '2';
        const std::string stem = fmt::format("layers.0.ffn.experts.{}.{}.", x, proj);
        add(stem + "scale", Dtype::F8_E8M0, {down ? h : i, (down ? i : h) / 32});
        add(stem + "weight", Dtype::I8, {down ? h : i, (down ? i : h) / 2});
      }
    add("layers.0.ffn.gate.weight", Dtype::BF16, {e, h});
  }
  std::sort(ck.tensors.begin(), ck.tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return ck;
}

/// seed 0: the 16 codes in every group, and scale bytes in order. Other seeds: random bytes. Scales are low enough for
/// the constant that the backend adds.
std::vector<uint8_t> fill(const PackedTensor& t, int64_t bytes, uint32_t seed) {
  std::vector<uint8_t> out(static_cast<size_t>(bytes));
  std::mt19937 random(seed + uint32_t(t.role) * 7 + uint32_t(t.part));
  const int largest = t.part == Part::scales ? 255 - t.parameter->add : 255;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t j = i % 16, g = i / 16;
    const size_t in_turn = t.part == Part::codes ? (j + g) % 16 | (15 - j) << 4 : i;
    out[i] = uint8_t((seed ? random() : in_turn) % size_t(largest + 1));
  }
  return out;
}

/// Packs every tensor for every rank and unpacks the ranks into one. False if the backend refuses the shape.
bool round_trip(const Checkpoint& ck, const Model& model, const Backend& backend, int tp, uint32_t seed) {
  Problems problems;
  const Plan plan = make_plan(ck, model, backend, {.tp_size = tp}, problems);
  if (problems.any()) return false;
  const auto device = open_cpu();
  for (size_t i = 0; i < plan.packed.size(); i += size_t(tp)) {
    const PackedTensor& first = plan.packed[i];
    const auto experts = int64_t(model.layers[0].experts.size());
    const Pieces pieces = pieces_in(plan, first, 0, experts);
    const auto source = fill(first, pieces.source_bytes, seed);
    std::vector<uint8_t> canonical(size_t(pieces.canonical_bytes)), again(canonical.size()), back(source.size());
    for (const Piece& p : pieces.list) {
      const ScaleReport r = to_canonical(first, p, source.data(), canonical.data());
      REQUIRE(r.bad == 0);
    }
    for (size_t r = i; r < i + size_t(tp); ++r) {
      const PackedTensor& t = plan.packed[r];
      std::vector<uint8_t> packed(size_t(t.bytes));
      pack_experts(pieces, t, *device, canonical.data(), packed.data());
      for (const PadReport& pads : unpack_experts(pieces, t, *device, packed.data(), again.data()))
        CHECK(pads.wrong == 0);
    }
    for (const Piece& p : pieces.list) restore_piece(first, p, false, again.data(), back.data());
    INFO(first.name);
    CHECK((back == source));  // too large to print
  }
  return true;
}

/// Every tensor of all ranks, packed one behind the other. Empty if the backend refuses the shape.
std::vector<uint8_t> packed_by(const Backend& backend, const Checkpoint& ck, const Model& model, int tp) {
  Problems problems;
  const Plan plan = make_plan(ck, model, backend, {.tp_size = tp}, problems);
  if (problems.any()) return {};
  const auto device = open_cpu();
  std::vector<uint8_t> all;
  for (const PackedTensor& t : plan.packed) {
    const Pieces pieces = pieces_in(plan, t, 0, int64_t(model.layers[0].experts.size()));
    const auto source = fill(t, pieces.source_bytes, 3);
    std::vector<uint8_t> canonical(size_t(pieces.canonical_bytes)), packed(size_t(t.bytes));
    for (const Piece& p : pieces.list) to_canonical(t, p, source.data(), canonical.data());
    pack_experts(pieces, t, *device, canonical.data(), packed.data());
    all.insert(all.end(), packed.begin(), packed.end());
  }
  return all;
}

/// Compares the bytes of each backend on one shape with those by its layout file. Returns how many have one.
int compare_layout_files(bool gpt_oss, int64_t hidden, int64_t intermediate, int tp) {
  const Checkpoint ck = made(gpt_oss, hidden, intermediate, 2);
  Problems problems;
  const Model model = recognise(ck, {}, problems);
  problems.throw_if_any();
  int compared = 0;
  for (const Backend* b : backends()) {
    INFO(b->engine << " " << b->name << " " << b->layout_version << ", tp " << tp);
    const LayerSize size = rank_share(model.layers.front(), tp);
    if (b->rewrite) {
      CHECK_THROWS_WITH(write_layout(*b, model, size), Catch::Contains("a layout file can only move bits"));
      continue;
    }
    const auto expected = packed_by(*b, ck, model, tp);
    if (expected.empty()) continue;
    std::string text;
    try {
      text = write_layout(*b, model, size);
    } catch (const Error& e) {
      CHECK_THAT(e.what(), Catch::Contains("experts are not the first dimension"));
      continue;
    }
    const Backend& file = read_layout(text, "file.json");
    CHECK(find_same(file, model.pairs) != nullptr);
    CHECK((packed_by(file, ck, model, tp) == expected));  // too large to print
    ++compared;
  }
  return compared;
}

/// Tries every lossless backend on one shape. Returns how many support it.
int round_trips(bool gpt_oss, int64_t hidden, int64_t intermediate, int64_t experts, int tp, uint32_t seed) {
  const Checkpoint ck = made(gpt_oss, hidden, intermediate, experts);
  Problems problems;
  const Model model = recognise(ck, {}, problems);
  problems.throw_if_any();
  int taken = 0;
  for (const Backend* b : backends()) {
    if (b->rewrite) continue;
    INFO(b->engine << " " << b->name << " " << b->layout_version << ", " << hidden << " x " << intermediate << ", tp "
                   << tp << ", seed " << seed);
    taken += round_trip(ck, model, *b, tp, seed);
  }
  return taken;
}

}  // namespace

TEST_CASE("every backend at GPT-OSS' 2880, whole and in ranks") {
  CHECK(round_trips(true, 2880, 96, 1, 1, 9) >= 20);
  for (const int tp : {1, 2, 4, 8}) CHECK(round_trips(true, 96, 2880, 1, tp, uint32_t(tp)) >= 20);
}

TEST_CASE("every backend over shapes and ranks", "[long]") {
  struct Sizes2 {
    bool gpt_oss;
    int64_t hidden, intermediate;
  };
  for (const auto& [gpt_oss, hidden, intermediate] :
       {Sizes2{true, 96, 480}, {true, 320, 512}, {false, 128, 256}, {false, 256, 1024}})
    for (const int tp : {1, 2, 4, 8}) {
      const int taken = round_trips(gpt_oss, hidden, intermediate, tp % 4 ? 2 : 1, tp, uint32_t(tp));
      INFO(hidden << " x " << intermediate << ", tp " << tp);
      CHECK(taken >= (intermediate / tp >= 128 ? 10 : 1));
    }
}

TEST_CASE("all 16 codes under all 256 scale bytes through every backend") {
  PackedTensor codes;
  codes.part = Part::codes;
  std::set<int> seen;
  for (const uint8_t b : fill(codes, 16, 0)) seen.insert(b & 15), seen.insert(b >> 4);
  CHECK(seen.size() == 16);
  for (const int tp : {1, 4}) {
    CHECK(round_trips(true, 256, 512, 1, tp, 0) >= 20);
    CHECK(round_trips(false, 512, 1024, 1, tp, 0) >= 20);
  }
}

TEST_CASE("a layout file of every backend packs its bytes, and is known as built in") {
  for (const int tp : {1, 2}) {
    CHECK(compare_layout_files(true, 96, 160, tp) >= 20);
    CHECK(compare_layout_files(false, 128, 256, tp) >= 20);
  }
}

TEST_CASE("jobs in the order of the source have experts that lie side by side in it") {
  Checkpoint ck = made(false, 256, 256, 12);
  int64_t end = 0;
  for (Tensor& t : ck.tensors) {  // by name: expert 10 follows expert 1
    t.offset = end;
    end += t.bytes;
  }
  Problems problems;
  const Model model = recognise(ck, {}, problems);
  for (const bool in_source_order : {false, true}) {
    const Plan plan =
        make_plan(ck, model, find_backend("marlin", "vllm", ""), {.in_source_order = in_source_order}, problems);
    std::map<size_t, std::set<std::pair<int64_t, int64_t>>> jobs;
    for (const Job& job : plan.jobs)
      if (const auto* pack = std::get_if<PackJob>(&job)) jobs[pack->target].insert({pack->begin, pack->end});
    CHECK(jobs.size() == 4);
    const std::set<std::pair<int64_t, int64_t>> wanted = {{0, 2}, {2, 10}, {10, 12}}, all = {{0, 12}};
    for (const auto& [target, ranges] : jobs) CHECK(ranges == (in_source_order ? wanted : all));
  }
  CHECK(!problems.any());
}
