// The order of jobs if another process may be reading the same source.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "src/checkpoint/shard_reader.h"
#include "src/plan/plan.h"

namespace mxfp4 {

/// Gives each job of a list once. Thread-safe. The next job is taken if its source is in the page cache. Otherwise the
/// first job in the order of the source is taken if its bytes are, else the next job.
///
/// The start of the source may get into the page cache after this run has begun. Then another process is reading the
/// source. This run then takes the last job instead of the next, so that the disk is read once for both:
///
///     the other reader   =========>
///     source             |--------------------------|
///     this run                     <================
///
/// Side by side, each process would read everything that the other reads. If a run reads through the page cache itself,
/// it cannot distinguish its pages from those of another reader. It never takes the last job.
class JobOrder {
 public:
  using IsCached = std::function<bool(int64_t job)>;
  /// in_source: the jobs [0, count) in the order of their bytes in the source. is_cached: only called by one thread at
  /// a time.
  JobOrder(std::vector<int64_t> in_source, IsCached is_cached, bool reads_past_cache);
  /// May be called once for each job.
  int64_t next();

 private:
  int64_t take(int64_t job);
  bool others_read() const { return sign_ && is_cached_(*sign_); }

  const std::vector<int64_t> in_source_;
  const IsCached is_cached_;
  std::optional<int64_t> sign_;  // one of the source's first jobs that was not in the page cache initially
  std::mutex mutex_;
  std::vector<bool> taken_;
  int64_t first_ = 0, last_;  // the first and last jobs that are not taken
  size_t first_in_source_ = 0;
};

/// The last range of each batch of jobs. If it is in the page cache, the other ranges are assumed to be there.
std::vector<TensorRange> last_ranges(const Plan& plan, const std::vector<std::vector<int64_t>>& batches);

/// The ranges that each batch reads, in order.
std::vector<std::vector<TensorRange>> all_ranges(const Plan& plan, const std::vector<std::vector<int64_t>>& batches);

/// ends[i] is the last range of job i. reader: of the source; null: jobs are taken in order.
JobOrder order_in_source(std::vector<TensorRange> ends, const ShardReader* reader);

}  // namespace mxfp4
