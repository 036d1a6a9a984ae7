// Whether a checkpoint's files are those that were published.
//
// Hugging Face's tools keep the hub's hash of each file that they download. In their cache a file is a link to
// blobs/HASH. Beside a download into a folder, .cache/huggingface/download/NAME.metadata has the commit, the hash and
// the time, each on a line.
#pragma once

#include "src/checkpoint/published_list.h"

namespace mxfp4 {

struct Checkpoint;
struct Shard;
class Problems;

/// The names of the files that an output keeps: shards, config, index and companions.
std::vector<std::string> original_files(const Checkpoint& checkpoint);

/// Null if no shard has the name.
const Shard* find_shard(const Checkpoint& checkpoint, const std::string& name);

/// All of such a file that is no shard.
std::string original_text(const Checkpoint& checkpoint, const std::string& name);

/// What Hugging Face's tools have kept of a checkpoint's files; none if they did not download it.
PublishedList published_beside(const Checkpoint& checkpoint);

/// The files of the checkpoint that `list` has, with their sizes. Compares all sizes, and the contents of small files;
/// those of shards remain to be compared. A shard that `list` lacks is a problem if `lists_all`.
PublishedList check_published(const Checkpoint& checkpoint, const PublishedList& list, bool lists_all,
                              Problems& problems);

/// Adds the problem that a list does not have a shard.
void report_not_listed(const std::string& name, const PublishedList& list, Problems& problems);

/// Adds a problem if a checkpoint's file has another hash than was published.
void compare_published(const PublishedFile& published, const std::string& is, Problems& problems);

}  // namespace mxfp4
