// convert: the hashes that a checkpoint must have, and the messages about them.
#pragma once

#include <set>
#include <string>

#include "src/checkpoint/published.h"

namespace mxfp4 {

struct Backend;
struct ConvertOptions;
struct Input;
struct ManifestOptions;
class OutputDir;

/// The checkpoint's files with published hashes, as check_published() gives them. Empty for a part, which reads a share
/// of each file, for a merge, which reads none, and for an output that is converted again.
PublishedList published_of(const ConvertOptions& options, const Checkpoint& checkpoint, Problems& problems);

/// True if Hugging Face's tools left hashes that parts of an output will not compare; then a note says so.
bool skips_published(const ConvertOptions& options, const Checkpoint& checkpoint);

/// Throws Error{usage} if a list is given for an OUT with parts, since their bytes were never compared.
void refuse_to_trust_parts(const ConvertOptions& options);

/// Leaves published hashes out of the manifest, because the bytes of merged parts were never compared. Prints a note.
void drop_published(const ConvertOptions& options, ManifestOptions& manifest);

/// Refuses to convert a remote checkpoint by a lossy backend: it reads scales twice, and a server may answer
/// differently.
void check_provable(const Input& in, const Backend& backend);

/// Compares the published hashes of a remote checkpoint's shards with the files that the written staging directory
/// restores, except for shards whose hashes were `compared` already. Throws Error{input}.
void prove_published(const ConvertOptions& options, const Input& in, const std::set<std::string>& compared,
                     OutputDir& out);

/// Throws Error{usage} if a list is given for an output that is to be converted again.
void refuse_published(const ConvertOptions& options);

/// Whether an output's record has all of these hashes.
bool has_record(const PublishedList& record, const PublishedList& published);

/// Whether OUT's record has all of these hashes. An output of parts has none, and a note says so; its hashes count only
/// if a list is given.
bool is_recorded(const ConvertOptions& options, const ManifestOptions& made, const PublishedList& published);

/// Names the checkpoint's files that an output does not keep. Says how many of the others are as published, and names
/// those without a hash.
void report_files(const Checkpoint& checkpoint, const PublishedList& published);

}  // namespace mxfp4
