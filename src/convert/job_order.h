// In which order jobs are taken whose source another process may be reading.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "src/checkpoint/shard_reader.h"
#include "src/plan/plan.h"

namespace mxfp4 {

/// Gives each job of a list once, to any thread: the next one if its source is in the page cache, else the first in the
/// source if that is, else the next one. If what was not there at first of the source's begin is in the page cache now,
/// another process is reading it: then the last one is taken instead of the next, and the disk is read once for both:
///
///     the other reader   =========>
///     source             |--------------------------|
///     this run                     <================
///
/// Side by side, each would read all that the other reads too. A run whose own reads go through the page cache could
/// not tell its pages from another reader's, and never takes the last one.
class JobOrder {
 public:
  using IsCached = std::function<bool(int64_t job)>;
  /// in_source: the jobs [0, count) in the order of their bytes in the source. is_cached: called by one thread at once.
  JobOrder(std::vector<int64_t> in_source, IsCached is_cached, bool reads_past_cache);
  /// As many calls as there are jobs.
  int64_t next();

 private:
  int64_t take(int64_t job);
  bool others_read() const { return sign_ && is_cached_(*sign_); }

  const std::vector<int64_t> in_source_;
  const IsCached is_cached_;
  std::optional<int64_t> sign_;  // one of the source's first jobs, if it was not cached at first
  std::mutex mutex_;
  std::vector<bool> taken_;
  int64_t first_ = 0, last_;  // of those not taken, in order
  size_t first_in_source_ = 0;
};

/// The source's bytes of a job, from which the rest can be judged: the last ones.
TensorRange last_range(const Plan& plan, const Job& job);

/// ends[i] is the last range of job i. reader: of the source; null: all jobs are taken in order.
JobOrder order_in_source(std::vector<TensorRange> ends, const ShardReader* reader);

}  // namespace mxfp4
