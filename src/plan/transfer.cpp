#include "src/plan/transfer.h"

#include <algorithm>
#include <cstring>

#include "src/plan/pieces.h"

namespace mxfp4 {

namespace {

/// Calls use(expert index within the job, matrix) for each expert.
template <class T, class Use>
void for_each_matrix(const Pieces& pieces, const PackedTensor& t, T* canonical, Use use) {
  const auto& experts = pieces.plan.model->layers[size_t(t.layer)].experts;
  size_t next = 0;
  for (int64_t e = pieces.begin; e < pieces.end; ++e) {
    T* at[2] = {};
    for (; next < pieces.list.size() && pieces.list[next].expert == e; ++next)
      at[pieces.list[next].view] = canonical + pieces.list[next].canonical_at;
    use(e - pieces.begin, matrix_of<T>(pieces.plan, t, experts[size_t(e)], at));
  }
}

/// Fetches rows `first` to `last` of m's views, piece by piece. If the rows of two views alternate in memory, one range
/// covers both.
void fetch_rows(const Matrix& m, int64_t first, int64_t last, const Pieces& pieces, const uint8_t* canonical,
                const FetchPiece& fetch) {
  std::pair<int64_t, int64_t> ranges[2];
  for (int v = 0; v < m.views; ++v) {
    const int64_t at = m.view[v].data - canonical;
    ranges[v] = {at + first * m.view[v].stride, at + (last - 1) * m.view[v].stride + m.real.b};
  }
  const auto& [a, b] = ranges;
  const bool in_turn = m.views == 2 && a.first < b.second && b.first < a.second;
  if (in_turn) ranges[0] = {std::min(a.first, b.first), std::max(a.second, b.second)};
  for (int v = 0; v < (in_turn ? 1 : m.views); ++v)
    for (const Piece& p : pieces.list) {
      const int64_t begin = std::max(ranges[v].first, p.canonical_at) - p.canonical_at;
      const int64_t end = std::min(ranges[v].second - p.canonical_at, p.width.to_canonical(p.range.bytes));
      if (begin < end) fetch(p, begin, end);
    }
}

}  // namespace

ScaleReport to_canonical(const PackedTensor& t, const Piece& p, const uint8_t* source, uint8_t* canonical) {
  const int64_t count = p.range.bytes / p.width.source;
  const uint8_t* from = source + p.source_at;
  uint8_t* to = canonical + p.canonical_at;
  if (t.part == Part::scales || t.part == Part::residual) {
    ScaleReport r = scales_to_canonical(p.range.tensor->dtype, from, count, to, uint8_t(0xFF - t.parameter->add));
    if (t.parameter->values) bytes_to_values(*t.parameter->values, to, count, r);
    return r;
  }
  if (t.part == Part::bias && p.width.source != p.width.canonical)
    bias_to_canonical(p.width, from, count, to);
  else if (from != to)
    std::memcpy(to, from, size_t(p.range.bytes));
  return {};
}

void pack_experts(const Pieces& pieces, const PackedTensor& t, Device& device, const uint8_t* canonical,
                  uint8_t* packed, std::span<Checksum> sums) {
  std::vector<PackItem> items;
  for_each_matrix(pieces, t, canonical, [&](int64_t i, const Matrix& m) {
    items.push_back({t.parameter->layout, m, packed + i * t.slice_bytes});
  });
  device.pack(items, sums);
}

std::vector<PadReport> unpack_experts(const Pieces& pieces, const PackedTensor& t, Device& device,
                                      const uint8_t* packed, uint8_t* canonical) {
  std::vector<UnpackItem> items;
  for_each_matrix(pieces, t, canonical, [&](int64_t i, const MutableMatrix& m) {
    items.push_back({t.parameter->layout, packed + i * t.slice_bytes, m});
  });
  std::vector<PadReport> reports(items.size());
  device.unpack(items, reports);
  return reports;
}

std::vector<ExpertReport> compare_experts(const Pieces& pieces, const PackedTensor& t, Device& device,
                                          const uint8_t* packed, const uint8_t* canonical, const FetchPiece& fetch) {
  std::vector<CompareItem> items;
  for_each_matrix(pieces, t, canonical, [&](int64_t i, const Matrix& m) {
    items.push_back({t.parameter->layout, packed + i * t.slice_bytes, m});
    if (fetch)
      items.back().fetch = [&, m](int64_t first, int64_t last) {
        fetch_rows(m, first, last, pieces, canonical, fetch);
      };
  });
  std::vector<CompareReport> found(items.size());
  device.compare(items, found);
  std::vector<ExpertReport> reports(items.size());
  for (const Piece& p : pieces.list) {
    const auto i = size_t(p.expert - pieces.begin);
    reports[i].pads = found[i].pads;
    for (int v = 0; v < items[i].matrix.views; ++v) {
      const Rows& rows = items[i].matrix.view[v];
      const ViewReport& r = found[i].view[v];
      const int64_t at = rows.data + r.n * rows.stride + r.b - (canonical + p.canonical_at);
      if (r.wrong == 0 || at < 0 || at >= p.width.to_canonical(p.range.bytes)) continue;
      PieceReport& piece = reports[i].piece[p.view];
      piece.first = piece.wrong ? std::min(piece.first, at) : at;
      piece.wrong += r.wrong;
    }
  }
  return reports;
}

std::string describe(const CopyReport& r) {
  return fmt::format("{} between copies, the first at byte {} of the expert; either copy may be the wrong one",
                     r.wrong == 1 ? "1 byte differs" : fmt::format("{} bytes differ", r.wrong), r.at);
}

std::string describe_no_scale(const Piece& p, int64_t element) {
  return fmt::format("the value stored for element {} of {} represents no scale", element,
                     printable(p.range.tensor->name));
}

int64_t restore_piece(const PackedTensor& t, const Piece& p, bool float_zero, const uint8_t* canonical,
                      uint8_t* source) {
  const int64_t count = p.range.bytes / p.width.source;
  const uint8_t* from = canonical + p.canonical_at;
  uint8_t* to = source + p.source_at;
  if (const ScaleValues* values = t.parameter->values) {
    std::vector<uint8_t> scales(static_cast<size_t>(count));
    const int64_t first = values->narrow(from, count, scales.data());
    scales_from_canonical(p.range.tensor->dtype, scales.data(), count, float_zero, to);
    return first;
  }
  switch (t.part) {
    case Part::codes:
      std::memcpy(to, from, size_t(count));
      break;
    case Part::scales:
      scales_from_canonical(p.range.tensor->dtype, from, count, float_zero, to);
      break;
    case Part::residual:  // of lossy backends, which are never unpacked
      break;
    case Part::bias:
      bias_from_canonical(p.width, from, count, to);
      break;
  }
  return -1;
}

}  // namespace mxfp4
