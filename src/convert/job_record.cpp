#include "src/convert/job_record.h"

#include <atomic>
#include <sstream>

#include "src/packed/manifest.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// Calls use_hash(Hash&) for every checksum of the job, and use_marks(uint8_t&) for every tensor it may mark, in order.
template <class UseHash, class UseMarks>
void visit(const Plan& plan, const Job& job, Checksums& sums, UseHash use_hash, UseMarks use_marks) {
  if (const auto* copy = std::get_if<CopyJob>(&job)) {
    for (const CopyPiece& p : plan.pieces_of(*copy)) {
      use_hash(sums.copied[size_t(p.copied)][size_t(p.begin / copy_piece_bytes)]);
      use_marks(sums.copied_marks[size_t(p.copied)]);
    }
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
    use_marks(packed.marks[at.tensor]);
  }
}

}  // namespace

std::string record_of(const Plan& plan, const Job& job, Checksums& sums, const JobCounts& counts) {
  std::string hashes, marks = "m";  // two hexadecimal digits for each tensor
  visit(
      plan, job, sums, [&](Hash& h) { hashes.append(1, ' ').append(to_hex(h)); },
      // jobs of one tensor share its marks
      [&](uint8_t& m) { marks += fmt::format("{:02x}", std::atomic_ref(m).load(std::memory_order_relaxed)); });
  const RewriteLoss& l = counts.loss;
  return fmt::format("{} {} {} {} {} {} {}{}", counts.zero_scales, l.groups, l.groups_clamped, l.codes_changed,
                     l.codes_rounded, l.minus_zeros, marks, hashes);
}

bool read_record(const Plan& plan, const Job& job, const std::string& record, Checksums& sums, JobCounts& counts) {
  std::istringstream words(record);
  std::string digits, word;
  JobCounts read;
  RewriteLoss& l = read.loss;
  words >> read.zero_scales >> l.groups >> l.groups_clamped >> l.codes_changed >> l.codes_rounded >> l.minus_zeros >>
      digits;
  bool good = words && digits.starts_with('m');
  std::vector<std::pair<Hash*, Hash>> hashes;
  std::vector<uint8_t*> marks;
  visit(
      plan, job, sums,
      [&](Hash& h) {
        hashes.emplace_back(&h, Hash{});
        good = good && words >> word && parse_hex(word, hashes.back().second);
      },
      [&](uint8_t& m) { marks.push_back(&m); });
  if (!good || words >> word || digits.size() != 2 * marks.size() + 1 ||
      digits.find_first_not_of("0123456789abcdef", 1) != digits.npos)
    return false;
  for (const auto& [to, hash] : hashes) *to = hash;
  for (size_t i = 0; i < marks.size(); ++i) *marks[i] |= uint8_t(std::stoi(digits.substr(2 * i + 1, 2), nullptr, 16));
  counts = read;
  return true;
}

}  // namespace mxfp4
