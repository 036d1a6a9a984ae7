// The two sides that diff compares: outputs, or dumps of an engine's live weights.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/checkpoint/shard_reader.h"

namespace mxfp4 {

struct Backend;
struct PackedCheckpoint;
struct PackedSet;

/// Without "model." in front and vLLM's "routed_experts." inside.
std::string plain_name(std::string name);

/// Tensors by name, of one side. Engines put their own words into names: see plain_name().
struct Side {
  Checkpoint files;
  std::map<std::string, Tensor> tensors;
  std::unique_ptr<ShardReader> reader;
  const Backend* backend = nullptr;  // of an output

  std::string read(const Tensor& t) const;
};

/// One rank of one set of an output.
struct SetRank {
  size_t set = 0;
  int rank = 0;
};

/// The packed tensors of one rank, by their places in the plan: there ranks take turns, in ascending order.
std::vector<size_t> tensors_of(const PackedSet& set, int rank);

/// An output's packed tensors of one part, and the copied ones.
Side side_of(const PackedCheckpoint& p, SetRank part);

/// A safetensors file, or every one below a directory, of one rank: each tensor is there once.
Side side_of_dump(const std::string& path);

}  // namespace mxfp4
