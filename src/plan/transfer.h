// Moving one job's experts between the checkpoint's pieces and the packed tensor, in both directions.
#pragma once

#include <functional>
#include <vector>

#include "kernels/pack/device.h"
#include "src/plan/canonical.h"
#include "src/plan/plan.h"

namespace mxfp4 {

struct Piece;
struct Pieces;

/// Converts one piece's elements to canonical bytes. Returns a report on scales; the report is empty for codes and
/// bias.
ScaleReport to_canonical(const PackedTensor& t, const Piece& p, const uint8_t* source, uint8_t* canonical);

/// Packs experts from canonical bytes into slices of the tensor t at `packed`, one slice for each expert. sums: see
/// Device::pack().
void pack_experts(const Pieces& pieces, const PackedTensor& t, Device& device, const uint8_t* canonical,
                  uint8_t* packed, std::span<Checksum> sums = {});

/// The inverse of pack_experts(). Returns one report of pad bytes for each expert.
std::vector<PadReport> unpack_experts(const Pieces& pieces, const PackedTensor& t, Device& device,
                                      const uint8_t* packed, uint8_t* canonical);

/// `wrong` counts the bytes of one piece that differ; `first` is the offset of the first one in the piece.
struct PieceReport {
  int64_t wrong = 0, first = 0;
};
struct ExpertReport {
  PadReport pads;
  PieceReport piece[2];
};

/// "3 bytes differ between copies, the first at byte 70 of the expert; either copy may be the wrong one".
std::string describe(const CopyReport& copies);
/// The message for a stored value that restore_piece() refuses.
std::string describe_no_scale(const Piece& p, int64_t element);

/// Reads bytes `first` to `end` of a piece into the canonical buffer.
using FetchPiece = std::function<void(const Piece&, int64_t first, int64_t end)>;

/// Unpacks experts on the device and compares them there with canonical bytes. `fetch` reads these bytes when they are
/// needed; null if they are in memory.
std::vector<ExpertReport> compare_experts(const Pieces& pieces, const PackedTensor& t, Device& device,
                                          const uint8_t* packed, const uint8_t* canonical,
                                          const FetchPiece& fetch = {});

/// Converts canonical bytes to the checkpoint's elements. float_zero: see scales_from_canonical(). Returns the index of
/// the first value that represents no scale in the layout file; -1 if there is none.
int64_t restore_piece(const PackedTensor& t, const Piece& p, bool float_zero, const uint8_t* canonical,
                      uint8_t* source);

}  // namespace mxfp4
