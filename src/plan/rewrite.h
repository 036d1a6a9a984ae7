// Lossy backends rewrite values between canonical form and layouts: each expert's codes together with its scales, on
// each rank separately.
#pragma once

#include <functional>

#include "src/plan/plan.h"

namespace mxfp4 {

class Device;
struct Pieces;

/// Reads the checkpoint's bytes of pieces.
using ReadPieces = std::function<void(const Pieces& pieces, uint8_t* to)>;

/// The canonical bytes of pieces, in order. Scales must have been checked.
std::vector<uint8_t> load_canonical(const Pieces& pieces, const ReadPieces& read);

/// The scales' pieces of the same experts.
Pieces scales_beside(const Pieces& pieces);

/// Like pack_experts(), for a lossy backend. scales: canonical scales of the same experts, if t is codes. Returns the
/// loss; only codes are counted, so that the sum over all tensors counts each change once.
RewriteLoss pack_rewritten(const Pieces& pieces, const PackedTensor& t, Device& device, const uint8_t* canonical,
                           const uint8_t* scales, uint8_t* packed);

/// Packs the experts of pieces into their tensor, for any backend, from the checkpoint. Returns the result of
/// pack_rewritten().
RewriteLoss pack_from(const Pieces& pieces, const ReadPieces& read, Device& device, uint8_t* packed);

/// Adds counts. The residual is not summed, since a sum of it has no meaning.
void add(RewriteLoss& sum, const RewriteLoss& loss);
/// "3 of 96 groups raised to the base, ...".
std::string describe_loss(const RewriteLoss& loss);
Json to_json(const RewriteLoss& loss);
/// ": loss: KEY is 2, 3 expected from the source" for each count in `loss` that to_json(made) does not have.
std::vector<std::string> differences(const Json& loss, const RewriteLoss& made);
/// Why `loss` cannot be the loss of the whole plan, judged by its tensors' sizes; empty if it can.
std::string why_not_loss_of(const Plan& plan, const Json& loss);

}  // namespace mxfp4
