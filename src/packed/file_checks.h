// Checks of OUT's files that do not read tensors.
#pragma once

#include "src/packed/manifest.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// Checks the sizes of all listed files, and the checksums of headers and small files.
void check_files(const PackedCheckpoint& packed, Problems& problems);

/// Names every file below OUT that the manifest does not list, and every empty directory. Files that git and
/// download tools keep in a directory are allowed (.git, .gitattributes, .cache).
void check_nothing_else(const PackedCheckpoint& packed, Problems& problems);

/// The first listed file without tensors whose text differs from its checksum; empty if there is none. A missing file
/// does not count as edited.
std::string edited_file(const Folder& out, const std::vector<ListedFile>& listed);

/// The files that may be removed with OUT: the manifest and the files that it lists, except small files that somebody
/// edited. Empty if OUT has no manifest.
std::vector<std::string> owned_files(const Folder& out);

/// Throws Error{input} if a listed file has an unknown kind: unpack and a new conversion would lose its contents.
void check_kinds(const PackedCheckpoint& packed);

}  // namespace mxfp4
