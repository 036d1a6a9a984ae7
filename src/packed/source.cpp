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
#include "src/plan/pieces.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// by_name: the files have the plan's tensors, but not its places.
class FromShards final : public Source {
 public:
  FromShards(const Checkpoint& checkpoint, bool by_name)
      : checkpoint_(checkpoint), reader_(checkpoint), by_name_(by_name) {}
  void read(Worker&, const Pieces& pieces, uint8_t* to, const DirectFile::BlockSink& sink) override {
    reader_.read(own(pieces.ranges()), to, sink);
  }
  std::vector<int64_t> expect(std::vector<std::vector<TensorRange>> jobs, const PublishedList& list) const override {
    for (auto& ranges : jobs) ranges = own(std::move(ranges));
    return reader_.expect(jobs, list);
  }
  bool any_wrong() const override { return reader_.any_wrong(); }
  std::map<std::string, std::string> arrived() const override { return reader_.arrived(); }
  const ShardReader* reader() const override { return by_name_ ? nullptr : &reader_; }
  void check_unchanged() const override { reader_.check_unchanged(); }

 private:
  std::vector<TensorRange> own(std::vector<TensorRange> ranges) const {
    for (TensorRange& r : ranges)
      if (by_name_) r.tensor = checkpoint_.find(r.tensor->name);
    return ranges;
  }

  const Checkpoint& checkpoint_;
  ShardReader reader_;
  const bool by_name_;
};

class FromPacked final : public Source {
 public:
  FromPacked(const PackedCheckpoint& packed, const PackedSet& set) : packed_(packed), set_(set), reader_(packed.files) {
    for (size_t i = 0; i < set.plan.packed.size(); i += size_t(set.plan.tp_size)) {
      const PackedTensor& t = set.plan.packed[i];
      first_rank_[{t.layer, t.role, t.part}] = i;
    }
    for (const Tensor& t : packed.copied) copied_.emplace(t.name, &t);
    for (const PackedTensor& t : set.plan.packed)
      slices_.emplace_back(set.plan.model->layers[size_t(t.layer)].experts.size());
  }
  void read(Worker& worker, const Pieces& wanted, uint8_t* to, const DirectFile::BlockSink& sink) override {
    if (!wanted.tensor) return read_copied(wanted, to, sink);
    const PackedTensor& t = *wanted.tensor;
    const size_t first = first_rank_.at({t.layer, t.role, t.part == Part::residual ? Part::scales : t.part});
    const Pieces pieces = pieces_in(set_.plan, set_.plan.packed[first], wanted.begin, wanted.end);
    uint8_t* canonical = worker.other.reserve(pieces.canonical_bytes);
    for (size_t r = 0; r < size_t(set_.plan.tp_size); ++r) unpack_rank(worker, pieces, first + r, canonical);
    for (const Piece& p : pieces.list) {
      const bool float_zero = packed_.manifest.float_zeros.count(p.range.tensor->name) > 0;
      if (const int64_t at = restore_piece(set_.plan.packed[first], p, float_zero, canonical, to); at >= 0)
        refuse(first, p.expert, describe_no_scale(p, at));
    }
    if (sink) sink(to, pieces.source_bytes);
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

  void read_copied(const Pieces& wanted, uint8_t* to, const DirectFile::BlockSink& sink) const {
    std::vector<TensorRange> ranges = wanted.ranges();
    for (TensorRange& r : ranges) r.tensor = copied_.at(r.tensor->name);
    reader_.read(ranges, to, sink);
  }

  /// Unpacks one rank's share of the pieces.
  void unpack_rank(Worker& worker, const Pieces& pieces, size_t i, uint8_t* canonical) {
    const PackedTensor& from = set_.plan.packed[i];
    const int64_t experts = pieces.end - pieces.begin, bytes = experts * from.slice_bytes;
    uint8_t* data = worker.packed.reserve(bytes);
    std::vector<Hash> hashes(static_cast<size_t>(experts));
    std::vector<HashedPiece> hashed;
    for (Hash& h : hashes) hashed.push_back({from.slice_bytes, &h});
    PieceHasher hasher(std::move(hashed));
    reader_.read({&set_.stored[i], pieces.begin * from.slice_bytes, bytes}, data, std::ref(hasher));
    keep(hashes, i, pieces.begin);
    const std::vector<PadReport> found = unpack_experts(pieces, from, *worker.device, data, canonical);
    for (size_t e = 0; e < found.size(); ++e)
      if (found[e].copies.wrong) refuse(i, pieces.begin + int64_t(e), describe(found[e].copies));
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

std::unique_ptr<Source> read_from(const Checkpoint& checkpoint) {
  return std::make_unique<FromShards>(checkpoint, false);
}

std::unique_ptr<Source> read_by_name(const Checkpoint& checkpoint) {
  return std::make_unique<FromShards>(checkpoint, true);
}

std::unique_ptr<Source> read_from(const PackedCheckpoint& packed, const PackedSet& set) {
  return std::make_unique<FromPacked>(packed, set);
}

}  // namespace mxfp4
