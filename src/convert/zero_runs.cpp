#include "src/convert/zero_runs.h"

#include <algorithm>

#include "src/checkpoint/shard_reader.h"
#include "src/models/layer_names.h"

namespace mxfp4 {

namespace {

constexpr int64_t chance_zeros = 64;       // zeros beside whole rows or pieces that may be chance, in bytes
constexpr int64_t tail_of_file = 1 << 20;  // at least this many zeros at the end of a file are not padding

bool has_unused_tokens(const Tensor& t) {
  return contains_any(t.name, {"emb", "wte", "lm_head", "head.weight", "output.weight"});
}

/// Bytes of a row: of the last dimension, or of all but the first if there are more than three. For codes in groups,
/// [.., K/32, 16], a row has the last two dimensions.
int64_t row_bytes(const Tensor& t) {
  const std::vector<int64_t>& shape = t.shape;
  if (shape.size() < 2) return t.bytes;
  const bool is_grouped = shape.size() == 4 && shape[3] == 16 && bits_of(t.dtype) == 8;
  const size_t first = is_grouped ? 2 : shape.size() > 3 ? 1 : shape.size() - 1;
  int64_t rows = 1;
  for (size_t i = 0; i < first; ++i) rows *= shape[i];
  return rows > 0 ? t.bytes / rows : t.bytes;
}

Hole hole_of(const Tensor& t, const ZeroRun& run, int64_t piece, int64_t end_of_data) {
  const int64_t row = row_bytes(t), bytes = run.end - run.begin;
  const Hole torn{Hole::torn, run.begin, run.end};
  if (t.shape.size() < 2) return torn;
  const int64_t first = (run.begin + row - 1) / row, end = run.end / row;
  const int64_t slack = std::min(chance_zeros, row / 8);
  const bool are_rows = first * row - run.begin <= slack && run.end - end * row <= slack;
  const bool ends_file = run.end == t.bytes && run.end == end_of_data && bytes >= tail_of_file;
  if (are_rows && has_unused_tokens(t)) return {bytes > t.bytes / 4 ? Hole::rows : Hole::none, first, end};
  const bool is_most = are_rows && bytes >= piece / 2;
  if (ends_file || is_most || (!are_rows && bytes >= 2 * row)) return torn;
  return {are_rows ? Hole::rows : Hole::none, first, end};
}

}  // namespace

ZeroRuns zero_runs(const ShardReader& reader, const Tensor& t, int64_t least, int64_t piece) {
  ZeroRuns out;
  ZeroRun run;
  const auto close = [&] {
    const int64_t first = (run.begin + piece - 1) / piece * piece, last = run.end / piece * piece;
    const bool are_pieces = first < last && first - run.begin <= chance_zeros && run.end - last <= chance_zeros;
    if (run.end - run.begin >= least && !are_pieces) out.push_back(run);
  };
  std::vector<uint8_t> block(size_t(1) << 20);
  for (int64_t at = 0; at < t.bytes; at += int64_t(block.size())) {
    const int64_t bytes = std::min(int64_t(block.size()), t.bytes - at);
    reader.read({&t, at, bytes}, block.data());
    for (auto i = block.begin(), end = i + bytes; i != end;) {
      const auto zero = std::find(i, end, 0), other = std::find_if(zero, end, [](uint8_t b) { return b != 0; });
      const int64_t from = at + (zero - block.begin());
      if (from != run.end) close(), run.begin = from;
      run.end = at + (other - block.begin());
      i = other;
    }
  }
  close();
  return out;
}

Hole worst_hole(const Tensor& t, const ZeroRuns& runs, int64_t piece, int64_t end_of_data) {
  Hole worst;
  for (const ZeroRun& run : runs)
    if (const Hole hole = hole_of(t, run, piece, end_of_data); hole.kind > worst.kind) worst = hole;
  return worst;
}

}  // namespace mxfp4
