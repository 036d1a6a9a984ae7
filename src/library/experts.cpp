// Packs new experts for an output's set, from unpacked memory to packed memory, by the set's own plan.
#include <cstdint>

#include "src/library/set.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace {

std::unique_ptr<mxfp4_pack_set> opened_set(const std::string& out, int number) {
  Problems problems;
  auto set = std::make_unique<mxfp4_pack_set>();
  set->output = open_packed(out, problems);
  problems.throw_if_any();
  if (number < 0 || size_t(number) >= set->output->sets.size())
    fail(ErrorKind::usage, "{}: it has no set {}", out, number);
  set->plan = &set->output->sets[size_t(number)].plan;
  bool checked = set->plan->backend->rewrite;
  for (const PackedTensor& t : set->plan->packed) {
    set->tensors[{t.rank, t.name}] = &t;
    checked |= t.parameter->add != 0 || t.parameter->values;
  }
  if (checked)
    fail(ErrorKind::usage, "{}: values for {} are checked and packed by convert alone", out, set->plan->backend->name);
  return set;
}

PackItem item_of(const mxfp4_pack_set& set, int rank, const mxfp4_pack_expert& e) {
  const PackedTensor& t = set.tensor(rank, e.tensor);
  const std::string& name = t.name;
  const auto& experts = set.plan->model->layers[size_t(t.layer)].experts;
  if (e.expert < 0 || size_t(e.expert) >= experts.size())
    fail(ErrorKind::usage, "{}: expert is {}, there are {}", name, e.expert, experts.size());
  const Expert& expert = experts[size_t(e.expert)];
  const uint8_t* pieces[2] = {};
  for (size_t i = 0; i < pieces_of(t, expert).size(); ++i) {
    pieces[i] = static_cast<const uint8_t*>(e.piece[i]);
    if (!pieces[i]) fail(ErrorKind::usage, "{}: piece[{}] is null", name, i);
  }
  if (!e.packed || reinterpret_cast<uintptr_t>(e.packed) % 16)
    fail(ErrorKind::usage, "{}: packed is null or not aligned to 16 bytes", name);
  return {t.parameter->layout, matrix_of<const uint8_t>(*set.plan, t, expert, pieces), static_cast<uint8_t*>(e.packed)};
}

}  // namespace

}  // namespace mxfp4

using namespace mxfp4;

mxfp4_pack_set::mxfp4_pack_set() = default;
mxfp4_pack_set::~mxfp4_pack_set() = default;

const PackedTensor& mxfp4_pack_set::tensor(int rank, const char* given) const {
  const std::string name = needed(given, "tensor");
  const auto found = tensors.find({rank, name});
  if (found == tensors.end()) fail(ErrorKind::usage, "the set has no tensor {} of rank {}", name, rank);
  return *found->second;
}

mxfp4_pack_status mxfp4_pack_open_set(const char* out, int number, mxfp4_pack_set** set) {
  if (set) *set = nullptr;
  return guarded([&] {
    if (!set) fail(ErrorKind::usage, "set is null");
    *set = opened_set(needed(out, "out"), number).release();
    return true;
  });
}

void mxfp4_pack_close_set(mxfp4_pack_set* set) { delete set; }

mxfp4_pack_status mxfp4_pack_pack_experts(const mxfp4_pack_set* set, int rank, const mxfp4_pack_expert* experts,
                                          size_t count, int gpu, void* stream) {
  return guarded([&] {
    if (!set) fail(ErrorKind::usage, "set is null");
    if (count > 0 && !experts) fail(ErrorKind::usage, "experts is null");
    std::vector<PackItem> items;
    for (size_t i = 0; i < count; ++i) items.push_back(item_of(*set, rank, known(&experts[i], "experts")));
    if (gpu < 0)
      open_cpu()->pack(items);
    else
      set->resident.pack(gpu, items, stream);
    return true;
  });
}
