// The plan of an output: the place of every byte, before any byte is read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "src/backends/backend.h"
#include "src/checkpoint/checkpoint.h"
#include "src/models/model.h"

namespace mxfp4 {

/// Tensors begin at multiples of this, and in packed files also every expert's slice if sizes permit.
inline constexpr int64_t page = 4096;
/// Copied tensors are hashed and moved in pieces of this size.
inline constexpr int64_t copy_piece_bytes = int64_t(16) << 20;

struct PlanOptions {
  int tp_size = 1;           // MoE tensor-parallel size: ranks 0 to tp_size - 1
  int set = 0;               // number of the set in its output, part of its files' names. Above 0 nothing is copied.
  bool keep_shards = false;  // shards that hold no expert stay files of their own
  int64_t job_bytes = int64_t(8) << 20;  // source bytes of a job, unless one expert has more
  bool in_source_order = false;          // a job's bytes follow one another in the source, if its format permits
};

/// A file to write; its tensors' offsets are from the start of the file.
struct OutFile {
  std::string name;    // relative: "packed/packed-00001.safetensors"
  std::string header;  // length field, JSON and padding
  int64_t bytes = 0;
  const Shard* shard = nullptr;  // if this file is a copy of that shard; `header` is then the shard's
};

/// Columns of the intermediate dimension that a rank holds.
struct Span {
  int64_t begin = 0, count = 0;
};

/// One packed tensor: one part of one role of one layer of one rank, all experts.
struct PackedTensor {
  std::string name;
  const Parameter* parameter = nullptr;
  int layer = 0;  // index into Model::layers
  Role role = Role::w13;
  Part part = Part::codes;
  int rank = 0;
  Span intermediate;
  Dims shape;
  int file = 0;
  int64_t offset = 0, bytes = 0, slice_bytes = 0;  // slice: one expert
};

struct CopiedTensor {
  const Tensor* source = nullptr;
  std::optional<int> file;  // none if the conversion of another set has copied it
  int64_t offset = 0;
};

/// Packs experts [begin, end) of packed[target] for every rank: the ranks of a tensor follow one another in
/// Plan::packed, and one read of the source serves all.
struct PackJob {
  size_t target = 0;
  int64_t begin = 0, end = 0;
};

/// Copies [begin, end) of Plan::copy_pieces, all of one file.
struct CopyJob {
  size_t begin = 0, end = 0;
};

using Job = std::variant<PackJob, CopyJob>;

/// A range of a copied tensor.
struct CopyPiece {
  size_t copied = 0;  // index into Plan::copied
  TensorRange range;
};

struct Plan {
  const Checkpoint* checkpoint = nullptr;
  const Model* model = nullptr;
  const Backend* backend = nullptr;
  std::string engine_version;  // requested; empty: none
  std::string engine_choice;   // the engine's own choice, if it was requested
  int64_t gpu_bytes = 0;       // memory of the GPU that will serve it
  int tp_size = 1;
  int set = 0;
  std::vector<OutFile> files;
  std::vector<PackedTensor> packed;
  std::vector<CopiedTensor> copied;
  std::vector<CopyPiece> copy_pieces;
  std::vector<Job> jobs;
  int64_t file_bytes = 0;     // of all files
  int64_t packed_bytes = 0;   // of packed tensors
  int64_t padding_bytes = 0;  // of them, pads
  int64_t job_bytes = 0;      // largest job: source, canonical and packed bytes together

  /// The packed size of a layer's matrix: w13 has twice the intermediate rows.
  Shape padded_shape(const PackedTensor& t) const;
  /// The packed tensors of a job, one per rank.
  std::span<const PackedTensor> ranks_of(const PackJob& job) const { return {&packed[job.target], size_t(tp_size)}; }
  /// The pieces of a job, which are contiguous in their file.
  std::span<const CopyPiece> pieces_of(const CopyJob& job) const {
    return std::span(copy_pieces).subspan(job.begin, job.end - job.begin);
  }
};

/// The engine's sizes of a layer on one rank.
LayerSize rank_size(const Backend& backend, const MoeLayer& layer, int tp_size);

/// Plans an output. Shapes that the backend does not support, and names that collide, are problems.
Plan make_plan(const Checkpoint& checkpoint, const Model& model, const Backend& backend, const PlanOptions& options,
               Problems& problems);

/// The pieces of the checkpoint that one expert's matrix is made of: one, or gate's and up's.
std::vector<TensorRange> pieces_of(const PackedTensor& t, const Expert& expert);
/// The bytes of these pieces; the same number for every expert of a layer.
int64_t source_bytes(const PackedTensor& t, const Expert& expert);

/// The matrix of one expert over its pieces in canonical form (see canonical.h). pieces[i] is the address of piece i.
template <class T>
BasicMatrix<T> matrix_of(const Plan& plan, const PackedTensor& t, const Expert& expert, T* const pieces[2]);

}  // namespace mxfp4
