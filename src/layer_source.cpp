#include "src/layer_source.h"

#include <cmath>
#include <cstring>

namespace mxfp4 {

namespace {

/// F32 powers of two to E8M0; 0.0 becomes byte 0.
std::vector<uint8_t> exponents_of(const std::vector<uint8_t>& floats) {
  std::vector<uint8_t> bytes(floats.size() / 4);
  for (size_t i = 0; i < bytes.size(); ++i) {
    float value;
    std::memcpy(&value, floats.data() + 4 * i, 4);
    bytes[i] = value == 0 ? 0 : std::isfinite(value) ? uint8_t(std::ilogb(value) + 127) : 255;
  }
  return bytes;
}

}  // namespace

LayerSource::LayerSource(const Checkpoint& checkpoint, const MoeLayer& layer) : reader_(checkpoint) {
  for (const Expert& e : layer.experts)
    experts_.push_back({matrix(e.gate, layer.intermediate, layer.hidden),
                        matrix(e.up, layer.intermediate, layer.hidden),
                        matrix(e.down, layer.hidden, layer.intermediate)});
}

const LayerSource::Piece& LayerSource::load(const Slice& slice) {
  const auto [at, is_new] = pieces_.try_emplace({slice.tensor, slice.piece});
  Piece& piece = at->second;
  if (!is_new) return piece;
  piece.bytes.resize(size_t(slice.piece_bytes));
  reader_.read(*slice.tensor, slice.piece, slice.piece_bytes, piece.bytes.data());
  if (slice.tensor->dtype == Dtype::F32) piece.bytes = exponents_of(piece.bytes), piece.narrowed = 4;
  return piece;
}

SourceRows LayerSource::rows(const Slice& slice) {
  if (!slice.tensor) return {};
  const Piece& piece = load(slice);
  return {piece.bytes.data() + slice.offset / piece.narrowed, slice.stride / piece.narrowed};
}

SourceMatrix LayerSource::matrix(const Proj& proj, int64_t n, int64_t k) {
  return {n, k, rows(proj.codes), rows(proj.scales), rows(proj.bias)};
}

}  // namespace mxfp4
