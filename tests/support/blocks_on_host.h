// The blocks of the CUDA kernels on the host: the plans and the functions for groups are those of the GPU.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "kernels/pack/cuda/planar.cuh"
#include "kernels/pack/device.h"
#include "kernels/pack/stage.h"

namespace mxfp4 {

template <class Item>
MutableMatrix matrix_to_write(const Item& item) {
  const auto& m = item.matrix;
  MutableMatrix w{{}, m.views, m.real, m.padded, m.order, m.pad, m.add};
  for (int v = 0; v < m.views; ++v) w.view[v] = {const_cast<uint8_t*>(m.view[v].data), m.view[v].stride};
  return w;
}

/// Runs the blocks of the kernels on the host, in reverse order. The CPU's functions stage the rows.
class BlocksOnHost final : public Device {
 public:
  std::string name() const override { return "blocks"; }
  uint8_t* allocate(int64_t) override { return nullptr; }
  void release(uint8_t*) override {}

  void pack(std::span<const PackItem> items, std::span<Checksum>) override {
    for (const PackItem& item : items) {
      begin(item);
      stage(item.matrix, storage_, 0, storage_.n, rows_.data());
      each_block([&](const PlanBlock& block) {
        each_slot(block, [](uint8_t* row, uint8_t* shared, size_t n) { std::copy_n(row, n, shared); });
        each_group([&](auto form, const PlanGroup& group) {
          each_packed(form, group, [&](const void* words, uint32_t at) {
            std::memcpy(item.packed + block.to + at, words, size_t(plan().group));
          });
        });
      });
    }
  }

  void unpack(std::span<const UnpackItem> items, std::span<PadReport> reports) override {
    for (size_t k = 0; k < items.size(); ++k) {
      begin(items[k]);
      CopyReport copies;
      each_block([&](const PlanBlock& block) {
        shared_.assign(shared_.size(), 0);
        each_group([&](auto form, const PlanGroup& group) { unpack_words(form, items[k].packed + block.to, group); });
        each_group([&](auto form, const PlanGroup& group) {
          if (plan().copies == 1 && !plan().is_repeated) return;
          each_packed(form, group, [&](const void* words, uint32_t at) {
            count_wrong(items[k].packed, block.to + at, words, copies);
          });
        });
        each_slot(block, [](uint8_t* row, uint8_t* shared, size_t n) { std::copy_n(shared, n, row); });
      });
      reports[k] = {};
      unstage(matrix_to_write(items[k]), storage_, 0, storage_.n, rows_.data(), reports[k]);
      reports[k].copies = copies;
    }
  }

  /// Compares by unpacking, because the kernel that compares has no layout.
  void compare(std::span<const CompareItem> items, std::span<CompareReport> reports) override {
    for (size_t k = 0; k < items.size(); ++k) {
      const CompareItem& item = items[k];
      const Matrix& m = item.matrix;
      if (item.fetch) item.fetch(0, m.real.n);
      std::vector<uint8_t> rows(size_t(m.views * m.real.n * m.real.b));
      UnpackItem unpacked{item.layout, item.packed, {{}, m.views, m.real, m.padded, m.order, m.pad, m.add}};
      for (int v = 0; v < m.views; ++v) unpacked.matrix.view[v] = {rows.data() + v * m.real.n * m.real.b, m.real.b};
      reports[k] = {};
      unpack({&unpacked, 1}, {&reports[k].pads, 1});
      for (int v = 0; v < m.views; ++v)
        for (int64_t n = 0; n < m.real.n; ++n)
          for (int64_t b = 0; b < m.real.b; ++b)
            if (unpacked.matrix.view[v].data[n * m.real.b + b] != m.view[v].data[n * m.view[v].stride + b] &&
                reports[k].view[v].wrong++ == 0)
              reports[k].view[v].n = n, reports[k].view[v].b = b;
    }
  }

 private:
  static void require(bool right, const char* wrong) {
    if (!right) throw std::logic_error(wrong);
  }
  const BlockPlan& plan() const { return plan_->plan; }

  template <class Item>
  void begin(const Item& item) {
    storage_ = storage_of(item.layout, item.matrix.padded);
    plan_ = std::make_unique<HostPlan>();
    make_plan(item.layout, storage_, matrix_to_write(item), *plan_);
    rows_.assign(size_t(storage_.n * storage_.b), 0xEE);
    shared_.assign(plan().shared_bytes, 0xDD);
    require(plan().slot_count <= BlockPlan::most_slots, "too many slots");
    require(plan().shared_bytes <= 40960, "too much shared memory");
    require(int64_t(plan().block_count) * plan().slot_count * plan().cols == storage_.n * storage_.b, "lost bytes");
    for (uint32_t i = 0; i < plan().slot_count * plan().across; ++i)
      require(plan().slot_of(i) == i / plan().across, "a chunk of another slot");
    for (const PlanGroup& group : plan_->groups)
      for (int j = 0; j < plan().together; ++j)
        require(((group.base + plan().base[j]) & ~PlanGroup::swapped) < plan().shared_bytes,
                "a group leaves the block");
  }

  template <class Use>
  void each_block(Use use) {
    for (size_t i = plan_->blocks.size(); i-- > 0;) use(plan_->blocks[i]);
  }
  template <class Use>
  void each_slot(const PlanBlock& block, Use use) {
    for (uint32_t s = 0; s < plan().slot_count; ++s) {
      const PlanSlot& slot = plan_->slots[block.slot + s];
      const int64_t row = block.row + slot.row, byte = block.byte + slot.byte;
      require(row < storage_.n && byte + plan().cols <= storage_.b, "a slot leaves the storage");
      require(slot.place % 16 == 0, "a slot that is not aligned");
      use(&rows_[size_t(row * storage_.b + byte)], &shared_[slot.place], plan().cols);
    }
  }

  template <class Use>
  void each_group(Use use) {
    with_form(plan(), [&](auto form, auto) {
      for (const PlanGroup& group : plan_->groups) use(form, group);
    });
  }
  /// use(words of a group, its place in the packed matrix from the block's first), for all copies.
  template <class F, class Use>
  void each_packed(F, const PlanGroup& group, Use use) const {
    typename F::Words words[BlockPlan::most_together];
    F::pack(plan(), shared_.data(), group.base, words);
    for (const uint32_t copy : plan_->copy)
      for (int j = 0; j < plan().together; ++j) use(&words[j], group.to + plan().part[j] + copy);
  }
  template <class F>
  void unpack_words(F, const uint8_t* from, const PlanGroup& group) {
    typename F::Words words[BlockPlan::most_together] = {};
    for (int j = 0; j < plan().together; ++j)
      std::memcpy(&words[j], from + group.to + plan().part[j], size_t(plan().group));
    F::unpack(plan(), words, shared_.data(), group.base);
  }
  void count_wrong(const uint8_t* packed, uint32_t at, const void* expected, CopyReport& copies) const {
    for (int j = 0; j < plan().group; ++j)
      if (packed[at + uint32_t(j)] != static_cast<const uint8_t*>(expected)[j] &&
          (copies.wrong++ == 0 || at + uint32_t(j) < copies.at))
        copies.at = at + uint32_t(j);
  }

  Shape storage_;
  std::unique_ptr<HostPlan> plan_;
  std::vector<uint8_t> rows_;
  std::vector<uint8_t> shared_;
};

}  // namespace mxfp4
