// A checkpoint: a directory of safetensors shards as one map name -> tensor. Only headers are read.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/checksum.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/checkpoint/safetensors.h"
#include "src/io/link.h"

namespace mxfp4 {

class RemoteSource;
class SourceFolder;

/// Far above any checkpoint, and low enough that no size computed from shapes overflows.
inline constexpr int64_t max_checkpoint_bytes = int64_t(1) << 46;

inline constexpr const char* config_name = "config.json";
inline constexpr const char* index_name = "model.safetensors.index.json";

/// Whether a name may be used as a path: relative, below the directory, in its shortest spelling, printable UTF-8, no
/// drive letter.
bool is_safe_name(std::string_view name);

/// Names of this tool's own files.
/// in_out: in an output. A companion cannot have such a name; a shard can, since its tensors are copied to other files.
/// everywhere: also in unpacked checkpoints and in staging directories. A shard cannot have such a name either.
enum class Reserved { no, in_out, everywhere };
Reserved reserved(std::string_view name);
inline bool is_own_name(std::string_view name) { return reserved(name) != Reserved::no; }

/// Whether a file's name is one of weights, in any format.
bool is_weights(const std::filesystem::path& name);

/// A text in a file that was read before. A checkpoint's headers and index are too large to keep.
struct TextInFile {
  std::string path, name;  // name: for messages
  int64_t offset = 0, bytes = 0;
  Hash hash = {};
  /// Throws Error{io} if the text has changed.
  std::string read() const;
  friend bool operator==(const TextInFile& a, const TextInFile& b) {
    return a.bytes == b.bytes && (a.bytes == 0 || XXH128_isEqual(a.hash, b.hash));
  }
};

/// One shard, a companion, config.json or the index.
struct Shard {
  std::string name;  // as the index spells it, relative to the directory
  std::string path;  // to open
  FileState state;
  TextInFile header = {};  // its JSON; no bytes if unknown
  /// The ctime of a checkpoint's own files, compared like the state, because no program can set a ctime back. It is 0
  /// for files of an output, whose ctime changes when --add links them. Creating or removing a link changes the ctime,
  /// so it is compared only if the file has no second name.
  int64_t ctime_ns = 0;
  uint64_t links = 0;
  /// Of a file on a server: its ETag or hash; else empty. Then `path` has a file with the header alone.
  std::string version = {};
};
/// The shard for an open file, which can be opened again by its path.
Shard source_shard(const std::string& name, const std::string& path, const Fd& opened);
/// Opens the shard's local file again. Throws Error{input} if the file was replaced or changed.
Fd open_again(const Shard& shard);

/// headers: companions on a server are not fetched if they are large.
enum class Extent { all, headers };

/// All tensors of all shards, always: source headers, checksums and unpack rely on each. A conversion that leaves
/// tensors out leaves them out of its Model and Plan.
struct Checkpoint {
  std::string dir;                             // as the user calls it, for messages
  std::shared_ptr<const SourceFolder> folder;  // all reads go through it
  std::shared_ptr<RemoteSource> remote;        // null: the files are local
  std::vector<Shard> shards;
  std::vector<Tensor> tensors;                             // by name; Tensor::file indexes shards
  Json config;                                             // {} if there is none
  std::vector<Shard> texts;                                // config.json and the index, if they are files
  std::string config_text;                                 // verbatim; empty if there is none
  TextInFile index;                                        // no bytes if there is none
  std::vector<std::string> companions;                     // other files to copy, relative paths, sorted
  std::map<std::string, std::string> left_out;             // skipped files, and why
  std::map<std::string, std::string> companion_checksums;  // by name, if a manifest has them
  std::map<std::string, Shard> companion_files;            // by name
  std::set<std::string> unread;                            // companions whose contents are unknown: see Extent
  bool complete = true;                                    // every header was read, so an unknown name is missing

  /// The first tensor whose name is not less than `name`.
  std::vector<Tensor>::const_iterator first_from(std::string_view name) const;
  const Tensor* find(std::string_view name) const;
  const std::string& shard_of(const Tensor& t) const { return shards[size_t(t.file)].name; }
  /// "SHARD: TENSOR" for messages.
  std::string where(const Tensor& t) const { return mxfp4::where(shard_of(t), t.name); }
};

/// model.safetensors.index.json.
struct Index {
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, file; by tensor
  int64_t total_size = -1;                                      // as stated in the index; -1 if it is not
  const std::string* file_of(std::string_view tensor) const;
};
Index parse_index(std::string_view text, Problems& problems);

/// Reads the config, the index and every shard's header, and checks them against each other and the files' sizes.
/// Problems go to `problems`; it throws only if the rest cannot be read. dir: a directory, or the address of a remote
/// source.
Checkpoint open_checkpoint(const std::string& dir, Problems& problems, Links links = Links::stay,
                           Extent extent = Extent::all);

/// The whole text of a small companion; companion.h has functions for large ones. Throws Error{input} if the text does
/// not have the known checksum.
std::string companion_text(const Checkpoint& checkpoint, const std::string& name);

/// The first string (number) of a config: at its top level, then in text_config, llm_config, language_config and
/// thinker_config.
std::string config_string(const Json& config, const char* key, std::string otherwise = {});
double config_number(const Json& config, const char* key, double otherwise);
/// None if the config has no such key, or another value.
std::optional<bool> config_flag(const Json& config, const char* key);
/// A whole number of at least 1.
int64_t config_count(const Json& config, const char* key, int64_t otherwise);
/// A string of any object.
std::string json_string(const Json& object, const char* key, std::string otherwise = {});

/// The keys of a config that count the main layers, of 1 to most_layers.
inline constexpr int64_t most_layers = 10'000;
inline constexpr const char* layer_keys[] = {"num_hidden_layers", "n_layers", "n_layer", "num_layers"};

/// The keys that a family reads. Each key must have its type unless it is absent or null; quantization_config must be
/// an object, and layer_keys are counts.
struct ConfigTypes {
  std::vector<const char*> strings, numbers, counts;
};
void check_config_types(const Json& config, const ConfigTypes& types, Problems& problems);

/// quantization_config of the top level or of the language model's object, else compression_config, which engines read
/// like it; null if there is none.
const Json* quantization_config(const Json& config);

}  // namespace mxfp4
