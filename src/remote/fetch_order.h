// The order in which a source's bytes are fetched, so that whole files arrive in the order of their bytes.
//
// A job waits until its last byte is here; until then its other bytes stay in memory. Some files side by side, so that
// several threads can hash, and several files of an output grow:
//
//     file 0  |1 1 1|4 4|5 5 5|9 9|     The jobs are numbered by the place of their last byte. Bytes are fetched from
//     file 1  |2 2|3 3 3|6 6|7|8 8|     the left to the right, in all files of a group.
#pragma once

#include <cstdint>
#include <vector>

namespace mxfp4 {

/// A range of the file with this number.
struct RemoteRange {
  size_t file = 0;
  int64_t offset = 0, bytes = 0;
};

struct FetchOrder {
  std::vector<int64_t> jobs;        // in the order to take them
  std::vector<RemoteRange> ranges;  // in the order to fetch them; no byte is twice in files that arrive in order
  std::vector<bool> in_order;       // of each file: its ranges are fetched in the order of their bytes
};

/// jobs: the ranges that each job reads. If the ranges of jobs are so far apart that more than `most_held` bytes would
/// wait for others, their files do not arrive in order. Then each job gets its ranges one after the other.
FetchOrder fetch_order(const std::vector<std::vector<RemoteRange>>& jobs, size_t files, int64_t most_held);

/// Whether the ranges of a file in `order` are all its bytes from `begin` to `end`.
bool is_whole(const FetchOrder& order, size_t file, int64_t begin, int64_t end);

}  // namespace mxfp4
