#include "src/convert/job_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/plan/pieces.h"

namespace mxfp4 {

namespace {

// The headers' pages, and pages that the system reads ahead with them, are always in the page cache.
constexpr size_t most_looked_at = 64;

}  // namespace

JobOrder::JobOrder(std::vector<int64_t> in_source, IsCached is_cached, bool reads_past_cache)
    : in_source_(std::move(in_source)),
      is_cached_(std::move(is_cached)),
      taken_(in_source_.size()),
      last_(int64_t(in_source_.size()) - 1) {
  for (size_t i = 0; reads_past_cache && i < std::min(in_source_.size(), most_looked_at) && !sign_; ++i)
    if (!is_cached_(in_source_[i])) sign_ = in_source_[i];
}

int64_t JobOrder::next() {
  const std::lock_guard lock(mutex_);
  while (taken_[size_t(first_)]) ++first_;
  if (is_cached_(first_)) return take(first_);
  while (taken_[size_t(in_source_[first_in_source_])]) ++first_in_source_;
  const int64_t behind_others = in_source_[first_in_source_];
  if (is_cached_(behind_others)) return take(behind_others);
  if (!others_read()) return take(first_);
  while (taken_[size_t(last_)]) --last_;
  return take(last_);
}

int64_t JobOrder::take(int64_t job) {
  taken_[size_t(job)] = true;
  return job;
}

std::vector<TensorRange> last_ranges(const Plan& plan, const std::vector<std::vector<int64_t>>& batches) {
  std::vector<TensorRange> ends;
  for (const auto& batch : batches) ends.push_back(pieces_in(plan, plan.jobs[size_t(batch.back())]).list.back().range);
  return ends;
}

std::vector<std::vector<TensorRange>> all_ranges(const Plan& plan, const std::vector<std::vector<int64_t>>& batches) {
  std::vector<std::vector<TensorRange>> ranges(batches.size());
  for (size_t i = 0; i < batches.size(); ++i)
    for (const int64_t job : batches[i])
      for (const Piece& p : pieces_in(plan, plan.jobs[size_t(job)]).list) ranges[i].push_back(p.range);
  return ranges;
}

JobOrder order_in_source(std::vector<TensorRange> ends, const ShardReader* reader) {
  std::vector<int64_t> in_source(ends.size());
  std::iota(in_source.begin(), in_source.end(), 0);
  const auto place = [&](int64_t i) {
    const TensorRange& r = ends[size_t(i)];
    return std::pair(r.tensor->file, r.in_file());
  };
  std::sort(in_source.begin(), in_source.end(), [&](int64_t a, int64_t b) { return place(a) < place(b); });
  const bool past_cache = reader && !ends.empty() && reader->reads_past_cache(*ends[size_t(in_source[0])].tensor);
  const auto is_cached = [ends = std::move(ends), reader](int64_t i) {
    return !reader || reader->is_cached(ends[size_t(i)]);
  };
  return {std::move(in_source), is_cached, past_cache};
}

}  // namespace mxfp4
