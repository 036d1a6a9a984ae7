// unpack: restores the checkpoint's original files, byte for byte.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/device/device_choice.h"
#include "src/io/output.h"
#include "src/io/parts.h"

namespace mxfp4 {

struct Checkpoint;
struct PackedCheckpoint;
struct PackedSet;

struct UnpackOptions {
  std::string out, dest;
  std::optional<PartNumber> part = {};  // writes this part only
  int threads = 0;
  DeviceOptions device;
  bool force = false;  // sets aside a DEST that has this checkpoint's small files and no other file
  bool json = false;
};

/// Restores the original shards, config, index and companions in `dest`, byte for byte. Compares every tensor with the
/// source's checksum in the manifest. If one differs, throws an error and writes no `dest`. Returns what --json prints.
Json unpack(const UnpackOptions& options);

/// Opens an output. Throws unless it has an unpackable set and undamaged small files.
std::unique_ptr<PackedCheckpoint> open_to_unpack(const std::string& out);
/// Restores the shards of the manifest's source for which `wanted` is true, and checks their tensors.
void write_shards(const PackedCheckpoint& packed, const PackedSet& set, const UnpackOptions& options,
                  const std::vector<bool>& wanted, const OutputDir& dest);
/// Writes config, index and companions as in the source.
void write_small_files(const PackedCheckpoint& packed, const OutputDir& dest);
/// The names of all files that unpack writes.
std::vector<std::string> unpacked_files(const Checkpoint& source);
/// The same names if all small files in `dir`, including config.json, belong to this checkpoint; otherwise none.
std::vector<std::string> same_files(const Checkpoint& source, const Folder& dir);

}  // namespace mxfp4
