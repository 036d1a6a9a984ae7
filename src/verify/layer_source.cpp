#include "src/verify/layer_source.h"

#include <cmath>
#include <cstring>

#include "src/base/threads.h"

namespace mxfp4 {

namespace {

/// F32 powers of two to E8M0, in place; 0.0 becomes byte 0.
void narrow(uint8_t* floats, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, floats + 4 * i, 4);
    floats[i] = value == 0 ? 0 : std::isfinite(value) ? uint8_t(std::ilogb(value) + 127) : 255;
  }
}

}  // namespace

void read_all(const ShardReader& reader, const std::vector<Read>& reads, int threads) {
  run_jobs(int64_t(reads.size()), threads,
           [&](int64_t i) { reader.read(reads[size_t(i)].range, reads[size_t(i)].to); });
}

std::set<int32_t> not_finite(const MoeSource& source) {
  std::set<int32_t> found;
  for (size_t e = 0; e < source.size(); ++e)
    for (const SourceMatrix* m : {&source[e].gate, &source[e].up, &source[e].down})
      for (int64_t r = 0; r < m->n; ++r)
        if (std::memchr(m->scales.row(r), 0xFF, size_t(m->k / group)) || !std::isfinite(bias_of(*m, r)))
          found.insert(int32_t(e));
  return found;
}

LayerSource::LayerSource(const Checkpoint& checkpoint, const MoeLayer& layer, int threads) {
  load(ShardReader(checkpoint), layer, threads);
  for (const Expert& e : layer.experts)
    experts_.push_back({matrix(e.gate, layer.intermediate, layer.hidden),
                        matrix(e.up, layer.intermediate, layer.hidden),
                        matrix(e.down, layer.hidden, layer.intermediate)});
}

void LayerSource::load(const ShardReader& reader, const MoeLayer& layer, int threads) {
  std::vector<Read> reads;
  const auto want = [&](const Slice& slice) {
    if (!slice.piece.tensor) return;
    const auto [at, is_new] = pieces_.try_emplace({slice.piece.tensor, slice.piece.offset});
    if (!is_new) return;
    at->second.bytes = std::make_unique_for_overwrite<uint8_t[]>(size_t(slice.piece.bytes));
    reads.push_back({slice.piece, at->second.bytes.get()});
  };
  for (const Expert& e : layer.experts)
    for (const Projection* p : {&e.gate, &e.up, &e.down}) want(p->codes), want(p->scales), want(p->bias);
  read_all(reader, reads, threads);
  for (const auto& [range, to] : reads)
    if (range.tensor->dtype == Dtype::F32)
      narrow(to, range.bytes / 4), pieces_.at({range.tensor, range.offset}).narrowed = 4;
}

SourceRows LayerSource::rows(const Slice& slice) const {
  if (!slice.piece.tensor) return {};
  const Piece& piece = pieces_.at({slice.piece.tensor, slice.piece.offset});
  return {piece.bytes.get() + slice.offset / piece.narrowed, slice.stride / piece.narrowed};
}

SourceMatrix LayerSource::matrix(const Projection& proj, int64_t n, int64_t k) const {
  return {n, k, rows(proj.codes), rows(proj.scales), rows(proj.bias)};
}

}  // namespace mxfp4
