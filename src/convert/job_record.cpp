#include "src/convert/job_record.h"

#include <atomic>
#include <sstream>

#include "src/packed/checksums.h"
#include "src/plan/pieces.h"

namespace mxfp4 {

namespace {

/// Calls use_hash(Hash&) for every checksum of the job, and use_marks(uint8_t&) for every tensor it may mark, in order.
template <class UseHash, class UseMarks>
void visit(const Plan& plan, const Job& job, Checksums& sums, UseHash use_hash, UseMarks use_marks) {
  if (std::holds_alternative<PackJob>(job))  // a copied piece has one checksum
    for (Hash* hash : output_hashes(plan, job, sums)) use_hash(*hash);
  const Pieces pieces = pieces_in(plan, job);
  SourceSums& sources = sums.sources_of(pieces);
  for (const Piece& p : pieces.list) {
    use_hash(sources.hash_of(p));
    use_marks(sources.marks_of(p));
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
