// Scales that a conversion refuses.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace mxfp4 {

struct Checksums;
struct PackedTensor;
struct Piece;
struct Pieces;
struct Plan;
class Problems;
struct ScaleReport;
class ShardReader;

class ScaleCheck {
 public:
  /// reader: of the checkpoint, to look up codes of scales that are 0.0. Null if the output's own conversion has done
  /// this. Bad scales are added to `problems`.
  /// allow_nan: NaN is no bad scale, unless the backend is lossy: it computes with scales, so NaN would not stay NaN.
  ScaleCheck(const Plan& plan, const ShardReader* reader, Checksums& sums, bool allow_nan, Problems& problems)
      : plan_(plan), reader_(reader), sums_(sums), allow_nan_(allow_nan), problems_(problems) {}

  /// Whether a piece of scales can be converted; `report` is that of to_canonical(). Marks F32 0.0 and NaN in the
  /// checksums. Thread-safe.
  bool check(const Pieces& pieces, const Piece& p, const ScaleReport& report);

 private:
  /// The index of the piece's first scale 0.0 with a nonzero code, or -1.
  int64_t first_nonzero_group(const PackedTensor& t, const Piece& p) const;
  /// Reports file, tensor, expert, row and group of scale `index` of a piece.
  void complain(const PackedTensor& t, const Piece& p, int64_t index, const std::string& what);

  const Plan& plan_;
  const ShardReader* const reader_;
  Checksums& sums_;
  const bool allow_nan_;
  std::mutex mutex_;
  Problems& problems_;
};

}  // namespace mxfp4
