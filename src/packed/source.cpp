#include "src/packed/source.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "src/checkpoint/shard_reader.h"
#include "src/device/pipeline.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// Reads pieces of copied tensors. find(tensor of the plan) gives the stored tensor.
template <class Find>
void read_copied_pieces(const ShardReader& reader, const Plan& plan, std::span<const CopyPiece> pieces, uint8_t* to,
                        const DirectFile::BlockSink& sink, Find find) {
  std::vector<TensorRange> ranges;
  for (const CopyPiece& p : pieces) ranges.push_back({find(*plan.copied[size_t(p.copied)].source), p.begin, p.bytes});
  reader.read(ranges, to, sink);
}

class FromShards final : public Source {
 public:
  explicit FromShards(const Checkpoint& checkpoint) : reader_(checkpoint) {}
  void read_pieces(Worker&, const Pieces& pieces, uint8_t* to, const DirectFile::BlockSink& sink) override {
    mxfp4::read_pieces(reader_, pieces, to, sink);
  }
  std::unique_ptr<PageCacheMap> map(Device& device, const Pieces& pieces) const override {
    return reader_.map(device, ranges_of(pieces));
  }
  void read_copied(const Plan& plan, std::span<const CopyPiece> pieces, uint8_t* to,
                   const DirectFile::BlockSink& sink) override {
    read_copied_pieces(reader_, plan, pieces, to, sink, [](const Tensor& t) { return &t; });
  }
  const ShardReader* reader() const override { return &reader_; }
  void check_unchanged() const override { reader_.check_unchanged(); }

 private:
  ShardReader reader_;
};

class FromNamed final : public Source {
 public:
  explicit FromNamed(const Checkpoint& checkpoint) : checkpoint_(checkpoint), reader_(checkpoint) {}
  void read_pieces(Worker&, const Pieces& pieces, uint8_t* to, const DirectFile::BlockSink& sink) override {
    Pieces mine = pieces;
    for (PieceAt& p : mine.list) p.slice.tensor = checkpoint_.find(p.slice.tensor->name);
    mxfp4::read_pieces(reader_, mine, to, sink);
  }
  void read_copied(const Plan& plan, std::span<const CopyPiece> pieces, uint8_t* to,
                   const DirectFile::BlockSink& sink) override {
    read_copied_pieces(reader_, plan, pieces, to, sink, [this](const Tensor& t) { return checkpoint_.find(t.name); });
  }
  const ShardReader* reader() const override { return nullptr; }
  void check_unchanged() const override { reader_.check_unchanged(); }

 private:
  const Checkpoint& checkpoint_;
  ShardReader reader_;
};

class FromPacked final : public Source {
 public:
  FromPacked(const PackedCheckpoint& packed, const PackedSet& set) : packed_(packed), set_(set), reader_(packed.files) {
    for (size_t i = 0; i < set.plan.packed.size(); i += set.plan.tp.ranks.size()) {
      const PackedTensor& t = set.plan.packed[i];
      first_rank_[{t.layer, t.role, t.part}] = i;
    }
    for (const Tensor& t : packed.copied) copied_.emplace(t.name, &t);
    for (const PackedTensor& t : set.plan.packed)
      slices_.emplace_back(set.plan.model->layers[size_t(t.layer)].experts.size());
  }
  void read_pieces(Worker& worker, const Pieces& wanted, uint8_t* to, const DirectFile::BlockSink& sink) override {
    const PackedTensor& t = wanted.tensor;
    const int64_t begin = wanted.begin, end = wanted.end;
    const size_t first = first_rank_.at({t.layer, t.role, t.part == Part::residual ? Part::scales : t.part});
    const Pieces pieces = pieces_in(set_.plan, set_.plan.packed[first], begin, end);
    uint8_t* canonical = worker.other.reserve(pieces.canonical_bytes);
    for (size_t i = first; i < first + set_.plan.tp.ranks.size(); ++i) {
      const PackedTensor& from = set_.plan.packed[i];
      const int64_t bytes = (end - begin) * from.slice_bytes;
      uint8_t* data = worker.packed.reserve(bytes);
      std::vector<Hash> hashes(size_t(end - begin));
      PieceHasher hasher = slice_hasher(from.slice_bytes, hashes);
      reader_.read(set_.stored[i], begin * from.slice_bytes, bytes, data, std::ref(hasher));
      keep(hashes, i, begin);
      const std::vector<PadReport> found = unpack_experts(pieces, from, *worker.device, data, canonical);
      for (size_t e = 0; e < found.size(); ++e)
        if (found[e].copies.wrong) refuse(i, begin + int64_t(e), describe(found[e].copies));
    }
    for (const PieceAt& p : pieces.list) {
      const bool float_zero = packed_.manifest.float_zeros.count(p.slice.tensor->name) > 0;
      if (const int64_t at = restore_piece(set_.plan.packed[first], p, float_zero, canonical, to); at >= 0)
        refuse(first, p.expert, describe_no_scale(p, at));
    }
    if (sink) sink(to, pieces.source_bytes);
  }
  void read_copied(const Plan& plan, std::span<const CopyPiece> pieces, uint8_t* to,
                   const DirectFile::BlockSink& sink) override {
    read_copied_pieces(reader_, plan, pieces, to, sink, [this](const Tensor& t) { return copied_.at(t.name); });
  }
  const ShardReader* reader() const override { return nullptr; }
  /// Also throws if a packed tensor, pads included, does not have its checksum in the manifest. A continued run has not
  /// read all slices of each tensor; the source's checksums cover those.
  void check_unchanged() const override {
    reader_.check_unchanged();
    Problems problems;
    for (size_t i = 0; i < slices_.size(); ++i) {
      std::vector<Hash> hashes;
      for (const std::optional<Hash>& h : slices_[i])
        if (h) hashes.push_back(*h);
      if (hashes.size() == slices_[i].size() && to_hex(hash_of_pieces(hashes)) != set_.checksums[i])
        problems.error(packed_.files.where(set_.stored[i]), "does not have the checksum in {}; damaged?",
                       manifest_name);
    }
    problems.throw_if_any();
  }

 private:
  [[noreturn]] void refuse(size_t tensor, int64_t expert, const std::string& what) const {
    fail(ErrorKind::input, "{}: expert {}: {}; damaged?", packed_.files.where(set_.stored[tensor]), expert, what);
  }

  static PieceHasher slice_hasher(int64_t slice_bytes, std::vector<Hash>& hashes) {
    std::vector<HashedPiece> list;
    for (Hash& h : hashes) list.push_back({slice_bytes, &h});
    return PieceHasher(std::move(list));
  }

  /// Thread-safe: several jobs may read the same scales.
  void keep(const std::vector<Hash>& hashes, size_t tensor, int64_t begin) {
    const std::lock_guard lock(mutex_);
    std::copy(hashes.begin(), hashes.end(), slices_[tensor].begin() + begin);
  }

  const PackedCheckpoint& packed_;
  const PackedSet& set_;
  ShardReader reader_;
  std::map<std::tuple<int, Role, Part>, size_t> first_rank_;
  std::map<std::string_view, const Tensor*> copied_;
  std::mutex mutex_;
  std::vector<std::vector<std::optional<Hash>>> slices_;  // as read: of each packed tensor, per expert
};

}  // namespace

std::unique_ptr<Source> read_from(const Checkpoint& checkpoint) { return std::make_unique<FromShards>(checkpoint); }

std::unique_ptr<Source> read_by_name(const Checkpoint& checkpoint) { return std::make_unique<FromNamed>(checkpoint); }

std::unique_ptr<Source> read_from(const PackedCheckpoint& packed, const PackedSet& set) {
  return std::make_unique<FromPacked>(packed, set);
}

}  // namespace mxfp4
