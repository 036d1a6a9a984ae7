// The source of a conversion, and the destination of its set: a new output, or an existing output with other sets.
#pragma once

#include "src/checkpoint/published_list.h"
#include "src/convert/convert.h"
#include "src/io/place.h"
#include "src/packed/manifest.h"
#include "src/packed/source.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// The checkpoint that is converted, and the source of its bytes.
struct Input {
  const Checkpoint& checkpoint;
  const Model& model;
  Source& source;
  const Checkpoint& files;          // the files that `source` reads
  const Manifest* known = nullptr;  // a manifest with the source's checksums, or null
  PublishedList published = {};     // the published hashes that the files must have
  const Place* place = nullptr;     // of OUT; null for a dry run
};

/// Whether a set is added to OUT from OUT's own tensors.
bool is_own_source(const ConvertOptions& options, const Place& place);

/// The directory at OUT's path. Holds nothing if there is none. place: null for a dry run.
Folder folder_of(const ConvertOptions& options, const Place* place);

class Destination {
 public:
  virtual ~Destination() = default;
  /// The index of the set in OUT.
  virtual int number(const Backend& backend, int tp_size) const = 0;
  virtual ManifestOptions manifest_options(const Input& in) const = 0;
  /// Throws Error{usage} if OUT cannot take the set.
  virtual void check(const Plan& plan) const = 0;
  /// Adds the files that OUT keeps to the staging directory. Throws Error if OUT has changed since the check.
  virtual void begin(const Plan& plan, const OutputDir& out) const = 0;
  /// Closes the earlier output's files once all files are written: NFS cannot cleanly delete open files.
  virtual void end() const = 0;
  /// The output to which the set is added, or null.
  virtual const PackedCheckpoint* earlier() const = 0;
};

/// Throws Error{usage} for an existing OUT whose manifest is damaged: nothing says which files are its own. e: why,
/// with OUT's name.
[[noreturn]] void fail_unreplaceable(const Error& e);

/// The first set of a new output, which replaces any existing OUT.
class NewOutput final : public Destination {
 public:
  /// Reads the list of files in OUT's manifest before the source is loaded into memory.
  NewOutput(const ConvertOptions& options, const Place* place);
  int number(const Backend&, int) const override { return 0; }
  ManifestOptions manifest_options(const Input& in) const override;
  /// With --force, refuses an OUT with an edited small file, which would be lost.
  void check(const Plan&) const override;
  void begin(const Plan&, const OutputDir&) const override {}
  void end() const override {}
  const PackedCheckpoint* earlier() const override { return nullptr; }

 private:
  const ConvertOptions& options_;
  const Place* place_;
  std::vector<ListedFile> replaced_;
};

/// Another set of an existing output.
class AddedSet final : public Destination {
 public:
  AddedSet(const ConvertOptions& options, PackedCheckpoint& out) : options_(options), out_(out) {}
  int number(const Backend& backend, int tp_size) const override;
  ManifestOptions manifest_options(const Input& in) const override;
  void check(const Plan& plan) const override;
  void begin(const Plan& plan, const OutputDir& out) const override;
  void end() const override;
  const PackedCheckpoint* earlier() const override { return &out_; }

 private:
  void check_free(const std::string& name) const;  // a name of the new set's files
  /// replaced: the directory that will be replaced. It is held, so nobody can exchange it.
  void check_same(const Folder& replaced) const;

  const ConvertOptions& options_;
  PackedCheckpoint& out_;
};

}  // namespace mxfp4
