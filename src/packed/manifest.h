// The manifest mxfp4-pack.json: the plan and its checksums in a file. man/mxfp4-pack-format.5 describes it.
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

struct Checksums;

inline constexpr int format_version = 3;

/// Kinds of OUT's files. Later versions may add kinds.
namespace file_kind {
inline constexpr const char* tensors = "tensors";  // packed or copied
inline constexpr const char* canary = "canary";
inline constexpr const char* companion = "companion";
inline constexpr const char* config = "config";
inline constexpr const char* index = "index";
inline constexpr const char* source_headers = "source_headers";
inline constexpr const char* source_index = "source_index";
inline constexpr const char* source_table = "source_table";
inline constexpr const char* table = "table";  // of a set's packed tensors
}  // namespace file_kind

/// A file of OUT other than the manifest. If the file has tensors, its checksum covers the header only,
/// because tensors have their own checksums.
struct ListedFile {
  std::string name;
  int64_t bytes = 0;
  std::string checksum;
  std::string kind;
  bool holds_tensors() const { return kind == file_kind::tensors; }
  friend bool operator==(const ListedFile&, const ListedFile&) = default;
};

/// The conversion as the manifest records it.
struct ManifestOptions {
  ModelOptions model;
  Json loss;                     // counts of a lossy backend, over all experts
  PublishedList published;       // the source's files whose published hashes were compared
  bool skips_published = false;  // published hashes existed but were not compared
  std::string tool_version = MXFP4_VERSION;
};

/// The checksums of a plan's tensors in the manifest's form.
struct TensorSums {
  std::vector<std::string> packed;    // of plan.packed[i]
  std::vector<Hash> source;           // of plan.checkpoint->tensors[i]
  std::set<std::string> float_zeros;  // source scale tensors whose byte 0 stands for F32 0.0
};
TensorSums sums_of(const Plan& plan, const Checksums& checksums);

/// A set in the manifest.
struct ManifestSet {
  std::string engine, backend, layout_version;
  std::string engine_version;  // as given to convert, or empty
  std::string layout_file;     // the JSON of the layout file given to convert, or empty
  int tp_size = 1;
  std::map<std::pair<int, std::string>, std::string> checksums;  // of packed tensors by rank and name
  std::map<std::pair<int, std::string>, std::string> files;      // the file of each packed tensor
  Json loss;                                                     // counts of a lossy backend; else null
  Json model;         // sizes, row order, activation and routed scaling factor, for loaders
  Json facts;         // the manifest's whole entry for the set
  std::string table;  // the file that lists its tensors
};

/// The manifest's entry for the plan's set. loss: counts of a lossy backend, over all experts.
Json facts_of(const Plan& plan, const Json& loss);

/// The manifest's text. The plan's set comes after the earlier sets.
std::string make_manifest(const Plan& plan, const TensorSums& sums, const ManifestOptions& options,
                          const std::vector<ListedFile>& files, const std::vector<ManifestSet>& earlier);

/// The backend of a set: the built-in backend of its name, or the backend in its layout file.
const Backend& backend_of(const ManifestSet& set, const Model& model);

/// "marlin of vllm", "marlin of vllm at tp 2".
std::string describe(const ManifestSet& set);

/// A manifest read from OUT. The entries of single tensors are in tables, which open_packed() reads.
struct Manifest {
  std::string own_checksum;  // of its text
  std::string fingerprint;
  ManifestOptions options;
  std::vector<ListedFile> files;
  std::vector<ManifestSet> sets;
  Checkpoint source;                          // names, dtypes, shapes, config and index; no data
  std::vector<Hash> checksums;                // of source.tensors[i]: OUT has all of them
  std::map<std::string, std::string> copied;  // file of a copied tensor, by name
  std::set<std::string> float_zeros;          // source scale tensors whose byte 0 stands for F32 0.0

  /// `tensor`: a name in the source.
  Hash checksum_of(std::string_view tensor) const {
    return checksums.at(size_t(source.find(tensor) - source.tensors.data()));
  }
};

/// Throws Error{input} if the text is newer, damaged or inconsistent.
Manifest parse_manifest(const std::string& text);

/// Whether a directory has a manifest, or a symbolic link of its name. Throws Error{io} if the system refuses the
/// look-up, for example in another user's directory.
bool has_manifest(const std::string& dir);
bool has_manifest(const Folder& dir);
/// Throws Error{input} if OUT has no manifest. shown: OUT's name in messages.
void check_has_manifest(const Folder& out, const std::string& shown);
/// Throws Error{input} if only the staging directory of an output is there. shown: a path at which nothing is.
void refuse_unfinished(const std::string& shown);
/// Throws Error{usage} if `above`, in which `out` is to be made, is an output or lies in one.
void check_not_in_output(const std::string& out, const Folder& above);
/// The same for a path that nobody holds. Nothing is said of a folder above it that does not exist.
void check_not_in_output(const std::string& out);
Manifest read_manifest_file(const std::string& path);

/// The files that OUT's manifest lists. Reads the manifest's text only, no tables.
std::vector<ListedFile> read_listed_files(const Folder& out);

/// The checksums of a plan's source: element i belongs to plan.checkpoint->tensors[i].
std::vector<Hash> source_checksums(const Plan& plan, const Checksums& checksums);

/// A hash over name, dtype, shape and checksum of every source tensor, by name. checksums: see source_checksums().
std::string fingerprint_of(const Plan& plan, const std::vector<Hash>& checksums);

}  // namespace mxfp4
