#include "src/convert/scale_check.h"

#include <atomic>

#include "src/checkpoint/shard_reader.h"
#include "src/packed/checksums.h"
#include "src/plan/pieces.h"

namespace mxfp4 {

bool ScaleCheck::check(const Pieces& pieces, const Piece& p, const ScaleReport& r) {
  const PackedTensor& t = *pieces.tensor;
  bool is_good = true;
  const auto refuse = [&](int64_t index, const std::string& what) {
    complain(t, p, index, what);
    is_good = false;
  };
  const auto mark_source = [&](uint8_t what) {  // jobs of a stacked tensor share its marks
    std::atomic_ref(sums_.sources_of(pieces).marks_of(p)).fetch_or(what, std::memory_order_relaxed);
  };
  const bool is_lossy = plan_.backend->rewrite != nullptr;
  if (r.nan && allow_nan_ && !is_lossy)
    mark_source(mark::nan);
  else if (r.nan)
    refuse(r.first_nan, fmt::format("0xFF is NaN, which {} ({} such scales here)",
                                    is_lossy ? "a lossy backend cannot keep" : "--allow-incomplete accepts", r.nan));
  if (r.bad) refuse(r.first_bad, fmt::format("{} ({} such scales here)", r.first, r.bad));
  if (!r.zero_floats) return is_good;
  if (r.least_floats)
    refuse(r.first_zero_float, "holds both 0.0 and 2^-127, which would become the same byte");
  else if (const int64_t at = reader_ ? first_nonzero_group(t, p) : -1; at >= 0)
    refuse(at, "scale 0.0 over codes that are not zero");
  mark_source(mark::float_zero);
  return is_good;
}

int64_t ScaleCheck::first_nonzero_group(const PackedTensor& t, const Piece& p) const {
  const Expert& e = plan_.model->layers[size_t(t.layer)].experts[size_t(p.expert)];
  const TensorRange codes = (t.role == Role::w2 ? e.down : p.view == 1 ? e.up : e.gate).codes.piece;
  std::vector<float> scales(size_t(p.range.bytes / 4));
  reader_->read(p.range, scales.data());
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] != 0) continue;
    uint8_t bytes[group / 2];
    reader_->read({codes.tensor, codes.offset + int64_t(i) * group / 2, group / 2}, bytes);
    for (uint8_t b : bytes)
      if (b & 0x77) return int64_t(i);
  }
  return -1;
}

void ScaleCheck::complain(const PackedTensor& t, const Piece& p, int64_t index, const std::string& what) {
  const MoeLayer& layer = plan_.model->layers[size_t(t.layer)];
  const int64_t columns = (t.role == Role::w2 ? layer.intermediate : layer.hidden) / group;
  const std::lock_guard lock(mutex_);
  problems_.error(plan_.checkpoint->where(*p.range.tensor), "expert {}, row {}, group {}: {}", p.expert,
                  index / columns, index % columns, what);
}

}  // namespace mxfp4
