// convert --format sharded-state: GPT-OSS in the form that SGLang holds after its own conversion. An unpatched SGLang
// loads it with --load-format sharded_state. The packed files get the names that its loader looks for. Each rank has
// another file with all other parameters: rows and columns of copied tensors.
#pragma once

#include <string>
#include <vector>

#include "src/io/output.h"
#include "src/plan/plan.h"

namespace mxfp4 {

struct PackedCheckpoint;

inline constexpr const char* sharded_state_format = "sharded-state";
/// The only file in the index. It does not exist, so loaders that follow the index stop with its name.
inline constexpr const char* guard_file = "use--load-format-sharded_state.safetensors";

/// A parameter of one rank that is not packed: consecutive blocks of copied tensors, or one value everywhere.
struct StateTensor {
  /// Rows of `run` bytes in plan.copied[copied], from byte `begin`, `stride` bytes apart.
  struct Block {
    int copied = 0;
    int64_t begin = 0, rows = 0, run = 0, stride = 0;
  };
  Tensor tensor;  // offset from the start of the file
  std::vector<Block> blocks;
  float value = 0;  // if there are no blocks
};

/// The file with the other parameters of one rank.
struct StateFile {
  OutFile file;
  std::vector<StateTensor> tensors;
};

/// Turns the plan of a normal output into that of a sharded state. The packed files get the names of the ranks' parts.
/// The returned files, with the ranks' other parameters, are added to the plan.
/// Problems: another engine, backend or family; sizes that do not split; a tensor that is missing or has no place in
/// the state.
std::vector<StateFile> add_state(Plan& plan, Problems& problems);

/// Fills the state files. The copied tensors must be written before.
void write_state(const Plan& plan, const std::vector<StateFile>& files, const OutputDir& out, int threads);

/// The index, which names only the guard file.
std::string guard_index();

/// Compares every state file of OUT with the copied tensors.
void verify_state(const PackedCheckpoint& packed, int threads, Problems& problems);

}  // namespace mxfp4
