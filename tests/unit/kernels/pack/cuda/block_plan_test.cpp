// Tests the plans of the CUDA kernels: on the host, block after block, and on a GPU.
#include "kernels/pack/cuda/block_plan.h"

#include <catch2/catch.hpp>

#include "kernels/pack/cuda/plan_banks.h"
#include "tests/support/blocks_on_host.h"
#include "tests/support/mode_cases.h"

using namespace mxfp4;

namespace {

/// The plan of one matrix without pads.
std::unique_ptr<HostPlan> plan_of(const Layout& layout, Shape s) {
  MutableMatrix m;
  m.real = m.padded = s;
  m.view[0].stride = s.b;
  auto plan = std::make_unique<HostPlan>();
  make_plan(layout, storage_of(layout, s), m, *plan);
  return plan;
}

}  // namespace

TEST_CASE("blocks are what the CPU packs and unpacks, of every layout by modes") {
  const ModeCases all = all_mode_cases();
  BlocksOnHost blocks;
  check_cases(blocks, all.cases, 12);
  CHECK(all.cases.size() > 300);
}

TEST_CASE("every built-in layout has large blocks of long runs at true size") {
  for (const Layout& layout : layouts) {
    const std::string_view name = name_of(layout);
    INFO(name);
    if (name.ends_with(".bias")) continue;
    const bool scales = name.ends_with(".scales");
    const auto plan = plan_of(layout, {5888, scales ? 96 : 1536});
    CHECK(plan->plan.group == 16);
    CHECK(plan->plan.form != PlanForm::shared_words);
    CHECK(plan->plan.slot_count * plan->plan.cols >= 6144);
    CHECK(plan->plan.cols >= 64);
  }
}

TEST_CASE("lanes that meet in a bank take turns") {
  const auto lanes = [](int64_t step, int64_t count = 32) {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < count; ++i) places.push_back(i * step);
    return places;
  };
  CHECK(wavefronts(lanes(4), 4) == 1);
  CHECK(wavefronts(lanes(8), 4) == 2);
  CHECK(wavefronts(lanes(128), 4) == 32);
  CHECK(wavefronts(lanes(132), 4) == 1);
  CHECK(wavefronts(lanes(1), 1) == 1);  // four lanes want one word
  CHECK(wavefronts(lanes(0), 4) == 1);
  CHECK(wavefronts(lanes(16), 16) == 4);  // eight lanes use all banks
  CHECK(wavefronts(lanes(32), 16) == 8);
  CHECK(wavefronts(lanes(8, 20), 8) == 2);
}

TEST_CASE("cuda makes the CPU's bytes and reports of every layout by modes", "[gpu]") {
  if (cuda_device_count() == 0) return;
  const ModeCases all = all_mode_cases();
  check_cases(*open_cuda(0), all.cases);
  check_cases(*open_cuda(0, 1), all.cases);
}

TEST_CASE("cuda packs layouts by modes beside built-in ones, at true size", "[gpu]") {
  if (cuda_device_count() == 0) return;
  ModeCases all;
  const Shape s = {5888, 1536}, f32 = {5888, 384};
  const Mode twice = {2, {{0, 0}}};
  all.add(s, {{4, {{0, 1}}}, {8, {{1, 0}}}, {3072, {{0, 4}}}, {736, {{8, 0}}}});
  all.add(s, {{8, {{0, 1}}}, {5888, {{1, 0}}}, {1536, {{0, 8}}}});
  all.add(f32, {{32, {{0, 1}}}, {5888, {{1, 0}}}, {96, {{0, 32}}}});
  all.add(s, {{12288, {{0, 1}}}, twice, {5888, {{1, 0}}}});
  for (const Layout& layout : {Layout(MarlinCodes{}), Layout(FlashinferSm90V2Codes{}), Layout(HummingCodes{})}) {
    all.add(s, modes_of(layout, s));
    DeviceCase built_in = all.cases.back();
    built_in.layout = layout;
    built_in.padded = s;
    built_in.pad = {1, 2, 3, 4};  // these have pads of one byte
    all.cases.push_back(built_in);
  }
  check_cases(*open_cuda(0), all.cases);
}
