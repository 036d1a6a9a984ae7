// The two sides that diff compares: outputs, or dumps of an engine's live weights.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "src/checkpoint/shard_reader.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

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

/// The packed tensors of one rank: ranks take turns in a plan, in ascending order.
template <class Use>
void for_each_of_rank(const PackedSet& set, int rank, Use use) {
  const std::vector<int>& ranks = set.plan.tp.ranks;
  const auto first = size_t(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  for (size_t i = first; i < set.plan.packed.size(); i += ranks.size()) use(i);
}

/// An output's packed tensors of one part, and the copied ones.
Side side_of(const PackedCheckpoint& p, SetRank part);

/// A safetensors file, or every one below a directory, of one rank: each tensor is there once.
Side side_of_dump(const std::string& path);

}  // namespace mxfp4
