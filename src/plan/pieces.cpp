#include "src/plan/pieces.h"

#include <algorithm>

#include "src/io/direct_file.h"

namespace mxfp4 {

namespace {

/// Appends a piece behind the others in both buffers.
void add(Pieces& pieces, Piece piece) {
  piece.source_at = pieces.source_bytes;
  piece.canonical_at = pieces.canonical_bytes;
  pieces.source_bytes += piece.range.bytes;
  pieces.canonical_bytes += piece.width.to_canonical(piece.range.bytes);
  pieces.list.push_back(piece);
}

}  // namespace

std::vector<TensorRange> Pieces::ranges() const {
  std::vector<TensorRange> out;
  for (const Piece& p : list) out.push_back(p.range);
  return out;
}

Pieces pieces_in(const Plan& plan, const PackedTensor& t, int64_t begin, int64_t end) {
  Pieces out{plan, &t, begin, end};
  const auto& experts = plan.model->layers[size_t(t.layer)].experts;
  for (int64_t e = begin; e < end; ++e) {
    const std::vector<TensorRange> ranges = pieces_of(t, experts[size_t(e)]);
    for (size_t i = 0; i < ranges.size(); ++i) {
      const Tensor& source = *ranges[i].tensor;
      const bool stacked = ranges[i].bytes < source.bytes;
      add(out, {.range = ranges[i],
                .tensor = stacked ? i : size_t(e) * ranges.size() + i,
                .number = stacked ? size_t(e) : 0,
                .expert = e,
                .view = int(i),
                .width = width_of(t.part, source.dtype, *t.parameter)});
    }
  }
  return out;
}

Pieces pieces_in(const Plan& plan, const Job& job) {
  if (const auto* pack = std::get_if<PackJob>(&job))
    return pieces_in(plan, plan.packed[pack->target], pack->begin, pack->end);
  Pieces out{plan};
  for (const CopyPiece& p : plan.pieces_of(std::get<CopyJob>(job)))
    add(out, {.range = p.range, .tensor = p.copied, .number = size_t(p.range.offset / copy_piece_bytes)});
  return out;
}

std::vector<Pieces> copied_parts(const Pieces& whole, int64_t origin) {
  std::vector<Pieces> parts;
  const TensorRange& range = whole.list.front().range;
  for (int64_t done = 0; done < range.bytes; done += parts.back().source_bytes) {
    const int64_t most = copied_at_once - (origin + done) % DirectFile::page;
    Pieces& part = parts.emplace_back(whole);
    part.source_bytes = std::min(range.bytes - done, most);
    part.list.front().range = {range.tensor, range.offset + done, part.source_bytes};
  }
  return parts;
}

}  // namespace mxfp4
