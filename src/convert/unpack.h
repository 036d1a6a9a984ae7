// unpack: packed experts back to the checkpoint's own files, byte for byte.
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
  std::optional<PartNumber> part = {};  // only this part is written
  int threads = 0;
  DeviceOptions device;
  bool force = false;  // set aside a DEST that holds this checkpoint's small files and no other file
  bool json = false;
};

/// Writes a checkpoint to `dest`: the original's shards, config, index and companions, the same files byte for byte.
/// Every tensor is compared with the source's checksum in the manifest; one that differs is an error and leaves
/// nothing. Returns what --json prints.
Json unpack(const UnpackOptions& options);

/// An output of which there is an unpackable set, and whose small files are whole.
std::unique_ptr<PackedCheckpoint> open_to_unpack(const std::string& out);
/// Writes the shards of the manifest's source that are `wanted`, by their number, and checks their tensors.
void write_shards(const PackedCheckpoint& packed, const PackedSet& set, const UnpackOptions& options,
                  const std::vector<bool>& wanted, const OutputDir& dest);
/// Config and index verbatim, and the companions.
void write_small_files(const PackedCheckpoint& packed, const OutputDir& dest);
/// The names of all files that unpack writes.
std::vector<std::string> unpacked_files(const Checkpoint& source);
/// The same, where the small files of `dir` that are there are this checkpoint's, config.json among them; else none.
std::vector<std::string> same_files(const Checkpoint& source, const Folder& dir);

}  // namespace mxfp4
