#include "src/packed/checksums.h"

#include "src/plan/pieces.h"

namespace mxfp4 {

Hash& SourceSums::hash_of(const Piece& p) { return hashes[p.tensor][p.number]; }

uint8_t& SourceSums::marks_of(const Piece& p) { return marks[p.tensor]; }

Checksums::Checksums(const Plan& plan) {
  for (const PackedTensor& t : plan.packed) {
    const size_t experts = plan.model->layers[size_t(t.layer)].experts.size();
    Packed& p = packed.emplace_back();
    p.slices.resize(experts);
    if (t.rank != 0) continue;
    const std::vector<Piece> last = pieces_in(plan, t, int64_t(experts) - 1, int64_t(experts)).list;
    p.sources.hashes.assign(last.back().tensor + 1, std::vector<Hash>(last.back().number + 1));
    p.sources.marks.resize(p.sources.hashes.size());
  }
  copied.hashes.resize(plan.copied.size());
  copied.marks.resize(plan.copied.size());
  for (const CopyPiece& p : plan.copy_pieces) copied.hashes[p.copied].emplace_back();
}

SourceSums& Checksums::sources_of(const Pieces& pieces) {
  return pieces.tensor ? packed[size_t(pieces.tensor - pieces.plan.packed.data())].sources : copied;
}

std::vector<const Tensor*> sources_of(const Plan& plan, const PackedTensor& t) {
  std::vector<const Tensor*> out;
  for (const Expert& e : plan.model->layers[size_t(t.layer)].experts)
    for (const TensorRange& piece : pieces_of(t, e))
      if (piece.offset == 0) out.push_back(piece.tensor);
  return out;
}

void each_source(const Plan& plan, const Checksums& sums, const std::function<void(const SourceSum&)>& use) {
  const SourceSums& copied = sums.copied;
  for (size_t i = 0; i < plan.copied.size(); ++i)
    use({*plan.copied[i].source, copied.hashes[i], copied.marks[i], plan.copied[i].file});
  for (size_t i = 0; i < plan.packed.size(); i += size_t(plan.tp_size)) {
    const SourceSums& packed = sums.packed[i].sources;
    const std::vector<const Tensor*> tensors = sources_of(plan, plan.packed[i]);
    for (size_t s = 0; s < tensors.size(); ++s)
      use({*tensors[s], packed.hashes[s], packed.marks[s], plan.packed[i].file});
  }
}

std::vector<Hash*> output_hashes(const Plan& plan, const Job& job, Checksums& sums) {
  std::vector<Hash*> out;
  if (const auto* pack = std::get_if<PackJob>(&job)) {
    for (size_t r = 0; r < size_t(plan.tp_size); ++r)
      for (int64_t e = pack->begin; e < pack->end; ++e) out.push_back(&sums.packed[pack->target + r].slices[size_t(e)]);
    return out;
  }
  for (const Piece& p : pieces_in(plan, job).list) out.push_back(&sums.copied.hash_of(p));
  return out;
}

PieceHasher source_hasher(const Pieces& pieces, Checksums& sums) {
  SourceSums& sources = sums.sources_of(pieces);
  std::vector<HashedPiece> list;
  for (const Piece& p : pieces.list) list.push_back({p.range.bytes, &sources.hash_of(p)});
  return PieceHasher(std::move(list));
}

PieceHasher slice_hasher(const Plan& plan, size_t target, int64_t begin, int64_t end, Checksums& sums) {
  std::vector<HashedPiece> list;
  for (int64_t e = begin; e < end; ++e)
    list.push_back({plan.packed[target].slice_bytes, &sums.packed[target].slices[size_t(e)]});
  return PieceHasher(std::move(list));
}

}  // namespace mxfp4
