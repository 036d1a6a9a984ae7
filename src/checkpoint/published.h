// Compares a checkpoint's files with their published hashes.
//
// Hugging Face's tools keep the hub's hash of each file that they download. In their cache, a file is a link to
// blobs/HASH. A download into a folder adds .cache/huggingface/download/NAME.metadata, with the commit, the hash and
// the time on separate lines.
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

/// The whole text of an original file that is not a shard.
std::string original_text(const Checkpoint& checkpoint, const std::string& name);

/// The hashes that Hugging Face's tools keep beside a checkpoint; none if they did not download it.
PublishedList published_beside(const Checkpoint& checkpoint);

/// The files of the checkpoint that `list` has, with their sizes. Compares all sizes, and the contents of small files;
/// those of shards remain to be compared. A shard that `list` lacks is a problem if `lists_all`.
PublishedList check_published(const Checkpoint& checkpoint, const PublishedList& list, bool lists_all,
                              Problems& problems);

/// Reports that a list does not have a shard.
void report_not_listed(const std::string& name, const PublishedList& list, Problems& problems);

/// Adds a problem if a checkpoint's file has another hash than was published.
void compare_published(const PublishedFile& published, const std::string& is, Problems& problems);

}  // namespace mxfp4
