// What can be checked of OUT's files without reading tensors.
#pragma once

#include "src/packed/manifest.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// Sizes of all listed files, and the checksums of headers and of small files.
void check_files(const PackedCheckpoint& packed, Problems& problems);

/// Names every file below OUT that the manifest does not list, and every empty folder. SHA256SUMS, and what git and
/// download tools keep in a directory (.git, .gitattributes, .cache), may be there.
void check_nothing_else(const PackedCheckpoint& packed, Problems& problems);

/// The first of an output's files without tensors whose text is not what the manifest lists; empty: none. One that is
/// gone was not edited.
std::string edited_file(const Folder& out, const std::vector<ListedFile>& listed);

/// The manifest, the files that it lists and SHA256SUMS, but not one of the small ones that somebody edited: what may
/// be removed with OUT. Empty if OUT has no manifest.
std::vector<std::string> owned_files(const Folder& out);

/// Throws Error{input} where a file is of a kind that this program does not know, so that what it is for would be lost.
void check_kinds(const PackedCheckpoint& packed);

}  // namespace mxfp4
