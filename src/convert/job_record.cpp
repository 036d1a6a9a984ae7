#include "src/convert/job_record.h"

#include <atomic>
#include <sstream>

#include "src/packed/manifest.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// use_hash(Hash&) for every checksum that the job fills, use_flag(uint8_t&) for every mark it may set, in order.
template <class UseHash, class UseFlag>
void visit(const Plan& plan, const Job& job, Checksums& sums, UseHash use_hash, UseFlag use_flag) {
  if (const auto* copy = std::get_if<CopyJob>(&job)) {
    for (const CopyPiece& p : plan.pieces_of(*copy))
      use_hash(sums.copied[size_t(p.copied)][size_t(p.begin / copy_piece_bytes)]);
    return;
  }
  const auto& [target, begin, end] = std::get<PackJob>(job);
  const PackedTensor& t = plan.packed[target];
  Checksums::Packed& packed = sums.packed[target];
  for (size_t r = 0; r < plan.tp.ranks.size(); ++r)
    for (int64_t e = begin; e < end; ++e) use_hash(sums.packed[target + r].slices[size_t(e)]);
  for (const PieceAt& p : pieces_in(plan, t, begin, end).list) {
    const SourceIndex at = source_index(plan, t, p.expert, p.piece);
    use_hash(packed.sources[at.tensor][at.piece]);
    use_flag(packed.float_zeros[at.tensor]);
  }
}

}  // namespace

std::string record_of(const Plan& plan, const Job& job, Checksums& sums, const JobCounts& counts) {
  std::string hashes, flags = "f";
  visit(
      plan, job, sums, [&](Hash& h) { hashes.append(1, ' ').append(to_hex(h)); },
      // jobs of one stacked tensor share its mark
      [&](uint8_t& f) { flags += std::atomic_ref(f).load(std::memory_order_relaxed) ? '1' : '0'; });
  const RewriteLoss& l = counts.loss;
  return fmt::format("{} {} {} {} {} {} {}{}", counts.zero_scales, l.groups, l.groups_clamped, l.codes_changed,
                     l.codes_rounded, l.minus_zeros, flags, hashes);
}

bool read_record(const Plan& plan, const Job& job, const std::string& record, Checksums& sums, JobCounts& counts) {
  std::istringstream words(record);
  std::string flags, word;
  RewriteLoss& l = counts.loss;
  words >> counts.zero_scales >> l.groups >> l.groups_clamped >> l.codes_changed >> l.codes_rounded >> l.minus_zeros >>
      flags;
  bool good = bool(words);
  size_t next = 1;
  visit(
      plan, job, sums, [&](Hash& h) { good = good && words >> word && parse_hex(word, h); },
      [&](uint8_t& f) {
        good = good && next < flags.size();
        if (good && flags[next++] == '1') f = 1;
      });
  return good && !(words >> word);
}

}  // namespace mxfp4
