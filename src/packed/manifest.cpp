#include "src/packed/manifest.h"

#include "src/backends/layout_file.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

const Backend& backend_of(const ManifestSet& set, const Model& model) {
  if (set.layout_file.empty()) return find_backend(set.backend, set.engine, set.layout_version, &model);
  const Backend& b = read_layout(set.layout_file, std::string(manifest_name) + ": layout_file");
  if (set.backend != b.name || set.engine != b.engine || set.layout_version != b.layout_version)
    fail(ErrorKind::input, "{}: {} {} does not match its layout_file ({} of {}, {}); damaged?", manifest_name,
         describe(set), set.layout_version, b.name, b.engine, b.layout_version);
  return b;
}

std::string describe(const ManifestSet& s) {
  std::string out = printable(s.backend + " of " + s.engine);  // names in a layout file are arbitrary
  if (s.tp.size > 1) out += fmt::format(" at tp {}", s.tp.size);
  if (!s.tp.complete())
    out += fmt::format(", rank{} {}", s.tp.ranks.size() > 1 ? "s" : "", fmt::join(s.tp.ranks, ", "));
  return out;
}

Checksums::Checksums(const Plan& plan) {
  for (const PackedTensor& t : plan.packed) {
    const auto& experts = plan.model->layers[size_t(t.layer)].experts;
    Packed p;
    p.slices.resize(experts.size());
    const size_t tensors = t.rank == plan.tp.ranks.front() ? sources_of(plan, t).size() : 0;
    p.marks.resize(tensors);
    const bool stacked = source_index(plan, t, int64_t(experts.size()) - 1, 0).piece > 0;
    p.sources.assign(tensors, std::vector<Hash>(stacked ? experts.size() : 1));
    packed.push_back(std::move(p));
  }
  copied.resize(plan.copied.size());
  copied_marks.resize(plan.copied.size());
  for (const CopyPiece& p : plan.copy_pieces) copied[size_t(p.copied)].emplace_back();
}

std::vector<const Tensor*> sources_of(const Plan& plan, const PackedTensor& t) {
  std::vector<const Tensor*> out;
  for (const Expert& e : plan.model->layers[size_t(t.layer)].experts)
    for (const Slice& s : pieces_of(t, e))
      if (s.piece == 0) out.push_back(s.tensor);
  return out;
}

SourceIndex source_index(const Plan& plan, const PackedTensor& t, int64_t expert, int piece) {
  const auto& experts = plan.model->layers[size_t(t.layer)].experts;
  const auto pieces = pieces_of(t, experts[size_t(expert)]);
  const Slice& s = pieces[size_t(piece)];
  if (s.piece_bytes < s.tensor->bytes) return {size_t(piece), size_t(expert)};  // stacked
  return {size_t(expert) * pieces.size() + size_t(piece), 0};
}

PieceHasher source_hasher(const Plan& plan, size_t target, const Pieces& pieces, Checksums& sums) {
  std::vector<HashedPiece> list;
  for (const PieceAt& p : pieces.list) {
    const SourceIndex at = source_index(plan, plan.packed[target], p.expert, p.piece);
    list.push_back({p.slice.piece_bytes, &sums.packed[target].sources[at.tensor][at.piece]});
  }
  return PieceHasher(std::move(list));
}

PieceHasher slice_hasher(const Plan& plan, size_t target, int64_t begin, int64_t end, Checksums& sums) {
  std::vector<HashedPiece> list;
  for (int64_t e = begin; e < end; ++e)
    list.push_back({plan.packed[target].slice_bytes, &sums.packed[target].slices[size_t(e)]});
  return PieceHasher(std::move(list));
}

PieceHasher copy_hasher(std::span<const CopyPiece> pieces, Checksums& sums) {
  std::vector<HashedPiece> list;
  for (const CopyPiece& p : pieces)
    list.push_back({p.bytes, &sums.copied[size_t(p.copied)][size_t(p.begin / copy_piece_bytes)]});
  return PieceHasher(std::move(list));
}

}  // namespace mxfp4
