// verify --published: compares an output with the published hashes of its original checkpoint, without that checkpoint.
#pragma once

#include <optional>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/checkpoint/published_list.h"

namespace mxfp4 {

struct DeviceChoice;
struct PackedCheckpoint;
struct VerifyOptions;

struct PublishedReport {
  std::string list;  // the compared list
  int64_t files = 0, bytes = 0;
  std::vector<std::string> not_listed;  // files of the source that the list lacks
  std::vector<std::string> not_kept;    // files of the list that OUT lacks
};
Json to_json(const PublishedReport& report);
/// Two or three lines.
std::vector<std::string> lines_of(const PublishedReport& report);

/// Throws Error{input} if OUT cannot restore its checkpoint's files, because every set is lossy.
void check_restorable(const PackedCheckpoint& packed);

/// Restores the bytes of the shards in the list from every set that is not lossy, and compares their hashes. Returns
/// the bytes of these shards.
int64_t compare_restored(const PackedCheckpoint& packed, const PublishedList& list, int threads,
                         const DeviceChoice& devices, Problems& problems);

/// Restores the bytes of each original file in memory, from every set of OUT that is not lossy. Compares their hashes
/// with those of the list and with the manifest's own record. A shard that the list lacks is a problem.
PublishedReport compare_with_list(const VerifyOptions& options, const PackedCheckpoint& packed,
                                  const PublishedList& list, const DeviceChoice& devices, Problems& problems);

}  // namespace mxfp4
