#include "kernels/pack/cpu/route.h"

#include <utility>

#include "kernels/pack/cpu/numbers.h"
#include "kernels/pack/cpu/planes.h"
#include "kernels/pack/cpu/route_bits.h"

namespace mxfp4 {

namespace {

constexpr int least_piece = 4;           // bytes; units of shorter ones are moved sooner one by one
constexpr int64_t least_past = 2 << 20;  // bytes of a matrix: a smaller one stays in a cache

/// The blocks of a strip: one for each combination of the digits and of the bits outside of a block. Empty if a block
/// begins within a byte.
std::vector<Route::Block> blocks_of(const Numbers& n, const Ids& block, bool packing) {
  std::vector<std::vector<Bit>> digits = n.digits;
  for (int id = 0; id < int(n.bits.size()); ++id)
    if (!has(block, id) && !has(n.gathered, id) && !has(n.stored, id)) digits.push_back({{}, n.bits[size_t(id)]});
  std::vector<Bit> sums = {{n.first, 0}};
  for (const auto& digit : digits) {
    std::vector<Bit> longer;
    for (const Bit& d : digit)
      for (const Bit& s : sums) longer.push_back({s.from + d.from, s.to + d.to});
    sums = std::move(longer);
  }
  std::sort(sums.begin(), sums.end(), [](const Bit& a, const Bit& b) { return a.to < b.to; });
  std::vector<Route::Block> blocks;
  for (const Bit& s : sums)
    if (s.from % 2 || s.to % 2) return {};
  for (const Bit& s : sums)
    blocks.push_back(packing ? Route::Block{s.from / 2, s.to / 2} : Route::Block{s.to / 2, s.from / 2});
  return blocks;
}

/// The places of all pieces of a block.
Route::Pieces pieces_of(const RouteSteps& steps) {
  std::vector<int64_t> all = steps.piece;
  all.insert(all.end(), steps.slot.begin(), steps.slot.end());
  return {steps.bytes, sums_of(all)};
}

/// Lists the lines that a block reads; some are repeated, so that groups have the same number. If blocks share lines,
/// those that begin with a line ask for it.
void find_lines(Route& route, const std::vector<int64_t>& pieces) {
  for (const int64_t at : pieces)
    if (std::find(route.lines.begin(), route.lines.end(), at / 64 * 64) == route.lines.end())
      route.lines.push_back(at / 64 * 64);
  route.shared_lines = int64_t(route.lines.size()) * 64 > route.bytes;
  const size_t groups = route.passes.front().from.groups.size();
  route.group_lines = int64_t((route.lines.size() + groups - 1) / groups);
  route.lines.resize(groups * size_t(route.group_lines), route.lines.back());
}

/// Whether each group of the last pass writes whole cache lines.
bool are_whole_lines(const Route& route, VectorForm form) {
  const Route::Pass& last = route.passes.back();
  if (last.to.pieces > 1 || !route.to.at.empty()) return false;
  for (const Route::Block& b : route.blocks)
    if (b.to % 64) return false;
  for (const int64_t at : last.to.groups)
    if (at % 64) return false;
  std::vector<int64_t> at = sums_of({last.to.slot.begin(), last.to.slot.begin() + last.slots});
  std::sort(at.begin(), at.end());
  const int vectors = 64 / form.bytes();
  for (size_t v = 0; v < at.size(); ++v)
    if (at[v] % 64 != int64_t(v % size_t(vectors)) * form.bytes()) return false;
  return at.size() % size_t(vectors) == 0;
}

std::optional<Route> find_route(const ModeLayout& layout, const Numbers& n, VectorForm form, bool packing) {
  std::vector<Bit> all = n.bits;
  if (!packing)
    for (Bit& b : all) std::swap(b.from, b.to);
  RouteBits bits = packing ? RouteBits(all, n.gathered, n.stored, form) : RouteBits(all, n.stored, n.gathered, form);
  if (!bits.place()) return std::nullopt;
  Route route;
  route.bytes = bits.bytes();
  const RouteSteps from = bits.steps(&Bit::from);
  bits.bring_lanes(n.mixes ? std::optional(mixed(layout, n, form.mixing, packing)) : std::nullopt);
  const RouteSteps to = bits.steps(&Bit::to);
  if (from.bytes < least_piece || to.bytes < least_piece) return std::nullopt;
  const bool gathers = from.bytes < Route::least_load, scatters = to.bytes < Route::least_load;
  route.passes = bits.passes(gathers ? bits.inner() : from, scatters ? bits.inner() : to);
  if (gathers) route.from = pieces_of(from);
  if (scatters) route.to = pieces_of(to);
  find_lines(route, pieces_of(from).at);
  route.blocks = blocks_of(n, bits.block(), packing);
  if (route.blocks.empty()) return std::nullopt;
  route.past_caches =
      form.passes_caches && layout.storage.n * layout.storage.b >= least_past && are_whole_lines(route, form);
  return route;
}

}  // namespace

std::optional<Routes> find_routes(const ModeLayout& layout, int64_t tiles, VectorForm form) {
  const auto numbers = numbers_of(layout, tiles);
  if (!numbers || (numbers->mixes && form.mixing == Mixing::none)) return std::nullopt;
  auto pack = find_route(layout, *numbers, form, true);
  auto unpack = find_route(layout, *numbers, form, false);
  if (!pack || !unpack) return std::nullopt;
  return Routes{std::move(*pack), std::move(*unpack)};
}

}  // namespace mxfp4
