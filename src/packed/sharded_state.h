// convert --format sharded-state: a complete state of GPT-OSS as SGLang holds it after its own conversion, which the
// engine loads unpatched with --load-format sharded_state. The packed files get the names that its loader looks for;
// beside them each rank has a file of all other parameters: rows and columns of the checkpoint's own tensors.
#pragma once

#include <string>
#include <vector>

#include "src/io/output.h"
#include "src/plan/plan.h"

namespace mxfp4 {

struct PackedCheckpoint;

inline constexpr const char* sharded_state_format = "sharded-state";
/// The one file that the index names. It is not there, so that every loader that goes by the index stops.
inline constexpr const char* guard_file = "use--load-format-sharded_state.safetensors";

/// A parameter of one rank that is not packed: blocks of copied tensors one after the other, or one value throughout.
struct StateTensor {
  /// Rows of `run` bytes, `stride` apart, of plan.copied[copied].
  struct Block {
    int copied = 0;
    int64_t begin = 0, rows = 0, run = 0, stride = 0;
  };
  Tensor tensor;  // offset from the start of the file
  std::vector<Block> blocks;
  float value = 0;  // where there are no blocks
};

/// The file of one rank's other parameters.
struct StateFile {
  OutFile file;
  std::vector<StateTensor> tensors;
};

/// Makes the plan of a normal output that of a sharded state: its packed files take the names of the ranks' parts, and
/// the returned files are added, which hold what the ranks need beside their packed tensors. What cannot be served so
/// goes to `problems`: another engine, backend or family, sizes that do not split, a tensor that is missing or has no
/// place in the state.
std::vector<StateFile> add_state(Plan& plan, Problems& problems);

/// Fills the state files, once the copied tensors are written.
void write_state(const Plan& plan, const std::vector<StateFile>& files, const OutputDir& out, int threads);

/// The index that names the guard file alone.
std::string guard_index();

/// Compares every state file of OUT with what its copied tensors give.
void verify_state(const PackedCheckpoint& packed, int threads, Problems& problems);

}  // namespace mxfp4
