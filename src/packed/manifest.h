// The manifest mxfp4-pack.json: the plan plus checksums, on disk. man/mxfp4-pack-format.5 is its description.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/base/checksum.h"
#include "src/base/folder.h"
#include "src/base/json.h"
#include "src/checkpoint/published_list.h"
#include "src/packed/manifest_format.h"
#include "src/plan/plan.h"

namespace mxfp4 {

struct Pieces;

inline constexpr int format_version = 3;

/// What was seen of a source tensor while it was read.
namespace mark {
inline constexpr uint8_t float_zero = 1;  // of scales: byte 0 stands for F32 0.0
inline constexpr uint8_t nan = 2;         // of numbers that are copied, or packed biases
inline constexpr uint8_t plus_infinity = 4;
inline constexpr uint8_t minus_infinity = 8;
inline constexpr uint8_t zero_block = 16;  // a whole block of zeros
}  // namespace mark

/// Checksums of a plan's tensors, filled while it is carried out.
struct Checksums {
  struct Packed {
    std::vector<Hash> slices;  // per expert
    // Of the first rank's tensor only, for all ranks are made of the same:
    std::vector<std::vector<Hash>> sources;  // per source tensor, per piece
    std::vector<uint8_t> marks;              // per source tensor
  };
  std::vector<Packed> packed;
  std::vector<std::vector<Hash>> copied;  // per copied tensor, per piece
  std::vector<uint8_t> copied_marks;      // per copied tensor

  explicit Checksums(const Plan& plan);
};

/// The source tensors of a packed tensor, in the order of the manifest: one stacked, gate's and up's stacked,
/// or gate, up per expert.
std::vector<const Tensor*> sources_of(const Plan& plan, const PackedTensor& t);

/// Where piece `piece` of expert `expert` is kept: index of the source tensor, index of its piece.
struct SourceIndex {
  size_t tensor, piece;
};
SourceIndex source_index(const Plan& plan, const PackedTensor& t, int64_t expert, int piece);

/// What hashes a job's bytes into `sums`, as they are read or written one after the other: the pieces of the source
/// that plan.packed[target] and the other ranks' tensors are made of; experts [begin, end) of plan.packed[target];
/// pieces of copied tensors.
PieceHasher source_hasher(const Plan& plan, size_t target, const Pieces& pieces, Checksums& sums);
PieceHasher slice_hasher(const Plan& plan, size_t target, int64_t begin, int64_t end, Checksums& sums);
PieceHasher copy_hasher(std::span<const CopyPiece> pieces, Checksums& sums);

/// What a file of OUT is; a later program may add some.
namespace file_kind {
inline constexpr const char* tensors = "tensors";  // packed or copied ones, or a sharded state's
inline constexpr const char* canary = "canary";
inline constexpr const char* companion = "companion";
inline constexpr const char* config = "config";
inline constexpr const char* index = "index";
inline constexpr const char* source_headers = "source_headers";
inline constexpr const char* source_index = "source_index";
inline constexpr const char* source_table = "source_table";
inline constexpr const char* table = "table";  // of a set's packed tensors
}  // namespace file_kind

/// A file of OUT other than the manifest and SHA256SUMS. Where it holds tensors, which have checksums of their own, the
/// file's covers the header only; in any other all bytes.
struct ListedFile {
  std::string name;
  int64_t bytes = 0;
  std::string checksum;
  std::string kind;
  bool holds_tensors() const { return kind == file_kind::tensors; }
  friend bool operator==(const ListedFile&, const ListedFile&) = default;
};

struct ManifestOptions {
  std::string gate_up;
  bool allow_nan_scales = false;
  bool allow_incomplete = false;  // the source lacks some of what its config promises
  Json loss;                      // of a lossy backend, over all experts
  std::string format;             // sharded_state_format, or empty
  bool sha256sums = false;        // SHA256SUMS is there
  PublishedList published;        // the source's files with the hashes that were compared
  bool skips_published = false;   // hashes were at hand, and none was compared
  std::string tool_version = MXFP4_VERSION;
};

/// The checksums of a plan's tensors, as a manifest has them.
struct TensorSums {
  std::vector<std::string> packed;    // of plan.packed[i]
  std::vector<Hash> source;           // of plan.checkpoint->tensors[i]
  std::set<std::string> float_zeros;  // source scale tensors whose byte 0 stands for F32 0.0
};
TensorSums sums_of(const Plan& plan, const Checksums& checksums);

/// One of the manifest's sets.
struct ManifestSet {
  std::string engine, backend, layout_version;
  std::string engine_version;  // that convert was given; empty where it was not
  std::string layout_file;     // the JSON of the layout file that convert was given; empty where it was not
  TensorParallel tp;
  std::map<std::pair<int, std::string>, std::string> checksums;  // of packed tensors by rank and name
  std::map<std::pair<int, std::string>, std::string> files;      // where each is kept
  Json loss;                                                     // of a lossy backend; null otherwise
  Json model;         // sizes, row order, activation and routed scaling factor, as loaders take them
  Json facts;         // all that the manifest says of it
  std::string table;  // the file that lists its tensors
};

/// What the manifest says of the plan's set. loss: of a lossy backend, over all experts.
Json facts_of(const Plan& plan, const Json& loss);

/// The manifest's text. The plan's set comes after the earlier ones.
std::string make_manifest(const Plan& plan, const TensorSums& sums, const ManifestOptions& options,
                          const std::vector<ListedFile>& files, const std::vector<ManifestSet>& earlier);

/// The backend of a set: the built-in one of its name, or that of its layout file.
const Backend& backend_of(const ManifestSet& set, const Model& model);

/// "marlin of vllm", "marlin of vllm at tp 2", "marlin of vllm at tp 2, rank 1".
std::string describe(const ManifestSet& set);

/// A manifest as read from OUT. What it says of tensors stands in other files, which open_packed() reads.
struct Manifest {
  std::string own_checksum;  // of its text
  std::string fingerprint;
  ManifestOptions options;
  std::vector<ListedFile> files;
  std::vector<ManifestSet> sets;
  Checkpoint source;                          // names, dtypes, shapes, config and index; no data
  std::vector<Hash> checksums;                // of source.tensors[i]
  std::map<std::string, std::string> copied;  // the file where a copied tensor is kept, by name
  std::set<std::string> float_zeros;          // source scale tensors whose byte 0 stands for F32 0.0

  /// Of a tensor of the source.
  Hash checksum_of(std::string_view tensor) const {
    return checksums.at(size_t(source.find(tensor) - source.tensors.data()));
  }
};

/// Throws Error{input} where the text is newer, damaged or not consistent.
Manifest parse_manifest(const std::string& text);

/// Whether a directory has a manifest, or a link of its name. Throws Error{io} if the system does not tell, as of
/// another user's directory.
bool has_manifest(const std::string& dir);
bool has_manifest(const Folder& dir);
/// Throws Error{input} where OUT has no manifest. shown: what messages call it.
void check_has_manifest(const Folder& out, const std::string& shown);
/// The manifest in a file.
Manifest read_manifest_file(const std::string& path);
/// An output's.
Manifest read_manifest(const Folder& out);

/// The files that OUT's manifest lists; nothing else of it is in memory.
std::vector<ListedFile> read_listed_files(const Folder& out);

/// The checksums of a plan's source: [i] is that of plan.checkpoint->tensors[i].
std::vector<Hash> source_checksums(const Plan& plan, const Checksums& checksums);

/// Over name, dtype, shape and checksum of every source tensor, by name. checksums: as source_checksums() gives them.
std::string fingerprint_of(const Plan& plan, const std::vector<Hash>& checksums);

}  // namespace mxfp4
