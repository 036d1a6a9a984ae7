#include "src/plan/deal.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "src/plan/jobs.h"

namespace mxfp4 {

namespace {

/// Numbers joined to sets. The least number of a set represents it.
class JoinedSets {
 public:
  explicit JoinedSets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  int find(int i) {
    while (parent_[size_t(i)] != i) i = parent_[size_t(i)] = parent_[size_t(parent_[size_t(i)])];
    return i;
  }
  void join(int a, int b) {
    const auto [least, other] = std::minmax({find(a), find(b)});
    parent_[size_t(other)] = least;
  }

 private:
  std::vector<int> parent_;
};

struct Share {
  int64_t bytes = 0;
  int part = 0;
};

void hand_out(std::vector<Share>& shares, int parts) {
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return shares[a].bytes > shares[b].bytes; });
  using Load = std::pair<int64_t, int>;  // bytes, part
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int p = 0; p < parts; ++p) loads.push({0, p});
  for (const size_t i : order) {
    if (shares[i].bytes == 0) continue;  // empty, or another number represents it
    const auto [bytes, part] = loads.top();
    loads.pop();
    shares[i].part = part;
    loads.push({bytes + shares[i].bytes, part});
  }
}

}  // namespace

Deal deal(const Plan& plan, int parts) {
  const size_t files = plan.files.size(), jobs = plan.jobs.size();
  JoinedSets sets(files + jobs);  // files, then jobs
  std::vector<Share> shares(files + jobs);
  for (size_t j = 0; j < jobs; ++j)
    for (const int file : files_of(plan, plan.jobs[j])) sets.join(file, int(files + j));
  const auto share_of = [&](size_t i) -> Share& { return shares[size_t(sets.find(int(i)))]; };
  for (size_t f = 0; f < files; ++f) share_of(f).bytes += plan.files[f].bytes;
  for (size_t j = 0; j < jobs; ++j)
    if (sets.find(int(files + j)) == int(files + j)) shares[files + j].bytes = bytes_of(plan, plan.jobs[j]);
  hand_out(shares, parts);
  Deal out;
  for (size_t f = 0; f < files; ++f) out.of_file.push_back(share_of(f).part);
  for (size_t j = 0; j < jobs; ++j) out.of_job.push_back(share_of(files + j).part);
  return out;
}

}  // namespace mxfp4
