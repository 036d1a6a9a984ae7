// The checkpoint that verify compares an output with.
#pragma once

#include <memory>
#include <string>

#include "src/checkpoint/shard_reader.h"

namespace mxfp4 {

/// The checkpoint to compare with, if one is given.
struct Original {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<ShardReader> reader;

  /// dir: may be empty.
  Original(const std::string& dir, Links links);

  /// Throws Error{input} if the checkpoint lacks a tensor of the source of `out`, or if its dtype or shape differs.
  void check_form(const Checkpoint& made_from, const std::string& out) const;

  /// Reports all differences except the contents of common tensors: config, index, companions, and additional tensors.
  void compare_rest(const Checkpoint& made_from, Problems& problems) const;

  explicit operator bool() const { return reader != nullptr; }
  /// Ranges of the output's source, by the tensor's name.
  void read(const TensorRange& r, uint8_t* to) const { reader->read(named(r), to); }
  bool is_cached(const TensorRange& r) const { return reader->is_cached(named(r)); }

 private:
  TensorRange named(const TensorRange& r) const { return {checkpoint->find(r.tensor->name), r.offset, r.bytes}; }
};

}  // namespace mxfp4
