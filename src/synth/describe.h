// The structure of a published checkpoint: its config, and the name, dtype, shape and shard of every tensor. Sizes are
// the published ones or others. The *.json files beside this file describe the models:
//
//   source     the source of the sizes, for readers alone
//   base       another description, to which this one is a merge patch (RFC 7396)
//   dims       name: size, an integer or an expression over the dims before it
//   lists      name: runs [count, [items]], one after the other. A run repeats its items until it has count entries;
//              {} in a string is the position in the list. Lists of integers can be indexed in expressions.
//   config     config.json; "=X" stands for the expression or the list X
//   parts      name: tensors, for groups that share them
//   groups     {for {variable: count}, if, shard, prefix, tensors}: the tensors once per combination of the variables
//              (from 0) for which `if` is true. A tensor is [name, dtype, shape, fill] or the name of a part; {x} in a
//              name is the variable x. Scales follow their weight directly. shard: the shard's number, if the model
//              defines which tensors are in one shard.
//   shards     {name, first, bytes}: the pattern of file names (number, last number), the first number, and the mean
//              size of a file if groups have no `shard`. Numbers from 0 end with "of" the last number.
//   tiny       the merge patch that makes a checkpoint of a few hundred KB
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/checkpoint/safetensors.h"

namespace mxfp4 {

struct SynthModel {
  std::string_view name;         // "gpt-oss-20b"
  std::string_view description;  // JSON
};

/// All models, by name.
const std::vector<SynthModel>& synth_models();

/// Sizes that differ from the published ones.
struct SynthSizes {
  std::optional<int64_t> layers, experts, hidden, intermediate, vocab;
  bool tiny = false;  // start from a checkpoint of a few hundred KB
};

/// The meaning of a tensor's random bytes.
enum class Fill : uint8_t {
  codes,         // MXFP4, two a byte
  scales,        // E8M0, of the codes before it
  weight,        // floats of RMS 1/sqrt(columns); F8 ones are larger by the inverse of their block scale
  block_scales,  // E8M0, of the F8 weight before it
  norm,          // floats near 1
  bias,          // small floats
  expert_ids,    // [tokens, top_k], I64: different experts for each token
};

struct SynthTensor : Tensor {  // file: index in SynthCheckpoint::shards; offset: in that file's data
  Fill fill = Fill::codes;
  int64_t weight = 0;  // index of the tensor whose scales these are; its own otherwise
};

struct SynthCheckpoint {
  Json config;
  std::vector<std::string> shards;   // file names
  std::vector<SynthTensor> tensors;  // by shard, then by offset
  int64_t experts = 0;
  int64_t bytes = 0;  // of all tensors
};

/// Throws Error{usage} for an unknown model or sizes that do not fit it.
SynthCheckpoint describe_checkpoint(std::string_view model, const SynthSizes& sizes);

}  // namespace mxfp4
