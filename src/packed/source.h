// The source of a conversion's bytes: a checkpoint's shards, or a packed output that is unpacked during the run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/checkpoint/published_list.h"
#include "src/io/direct_file.h"

namespace mxfp4 {

struct Checkpoint;
struct PackedCheckpoint;
struct PackedSet;
struct Pieces;
class ShardReader;
struct TensorRange;
struct Worker;

class Source {
 public:
  virtual ~Source() = default;
  /// Reads the pieces of a job in the checkpoint's form. `sink`: see DirectFile::read.
  virtual void read(Worker& worker, const Pieces& pieces, uint8_t* to, const DirectFile::BlockSink& sink = {}) = 0;
  /// See ShardReader::expect(), any_wrong() and arrived().
  virtual std::vector<int64_t> expect(std::vector<std::vector<TensorRange>>, const PublishedList&) const { return {}; }
  virtual bool any_wrong() const { return false; }
  virtual std::map<std::string, std::string> arrived() const { return {}; }
  /// The checkpoint, to look up codes of scales that are 0.0. Null if the output's own conversion has done this.
  virtual const ShardReader* reader() const = 0;
  /// Throws if a file has changed since it was opened, or if the bytes differ from known checksums.
  virtual void check_unchanged() const = 0;
};

std::unique_ptr<Source> read_from(const Checkpoint& checkpoint);

/// Reads a plan's tensors from other files with the same tensors, by name.
std::unique_ptr<Source> read_by_name(const Checkpoint& checkpoint);

std::unique_ptr<Source> read_from(const PackedCheckpoint& packed, const PackedSet& set);

}  // namespace mxfp4
