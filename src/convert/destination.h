// What a conversion reads, and where its set goes: into an output of its own, or beside the sets of one that is there.
#pragma once

#include "src/checkpoint/published_list.h"
#include "src/convert/convert.h"
#include "src/io/place.h"
#include "src/packed/manifest.h"
#include "src/packed/source.h"

namespace mxfp4 {

struct PackedCheckpoint;

/// What is converted, and where its bytes come from.
struct Input {
  const Checkpoint& checkpoint;
  const Model& model;
  Source& source;
  const Checkpoint& files;          // which the source reads
  const Manifest* known = nullptr;  // whose checksums the source must have, where it is known from before
  PublishedList published = {};     // the files whose hashes it must have
  const Place* place = nullptr;     // of OUT; null for a dry run
};

/// A set is added to OUT from its own tensors.
bool is_own_source(const ConvertOptions& options, const Place& place);

/// What stands in OUT's place; holds nothing if nothing does. place: null for a dry run.
Folder folder_of(const ConvertOptions& options, const Place* place);

class Destination {
 public:
  virtual ~Destination() = default;
  /// The set's number in OUT.
  virtual int number(const Backend& backend, const TensorParallel& tp) const = 0;
  virtual ManifestOptions manifest_options(const Input& in) const = 0;
  /// Throws Error{usage} where OUT cannot take the set.
  virtual void check(const Plan& plan) const = 0;
  /// Puts into the staging directory the files that OUT keeps. Throws Error if OUT is not what was checked any more.
  virtual void begin(const Plan& plan, const OutputDir& out) const = 0;
  /// All is written: nothing of what OUT was before is read any more, or open, which NFS does not like to be removed.
  virtual void end() const = 0;
  /// The output that the set is added to; null where it is the first.
  virtual const PackedCheckpoint* earlier() const = 0;
};

/// The first set of an output that takes the place of whatever is there.
class NewOutput final : public Destination {
 public:
  /// Reads what OUT's manifest lists, before the source is in memory.
  NewOutput(const ConvertOptions& options, const Place* place);
  int number(const Backend&, const TensorParallel&) const override { return 0; }
  ManifestOptions manifest_options(const Input& in) const override;
  /// With --force, also refuses an OUT with an edited small file, which would be lost. With --rank, also refuses an OUT
  /// with other ranks of the same set.
  void check(const Plan&) const override;
  void begin(const Plan&, const OutputDir&) const override {}
  void end() const override {}
  const PackedCheckpoint* earlier() const override { return nullptr; }

 private:
  void check_ranks(const Plan& plan) const;

  const ConvertOptions& options_;
  const Place* place_;
  std::vector<ListedFile> replaced_;
};

/// One more set of an output that is there.
class AddedSet final : public Destination {
 public:
  AddedSet(const ConvertOptions& options, PackedCheckpoint& out) : options_(options), out_(out) {}
  int number(const Backend& backend, const TensorParallel& tp) const override;
  ManifestOptions manifest_options(const Input& in) const override;
  void check(const Plan& plan) const override;
  void begin(const Plan& plan, const OutputDir& out) const override;
  void end() const override;
  const PackedCheckpoint* earlier() const override { return &out_; }

 private:
  void check_free(const std::string& name) const;  // of the new set
  /// replaced: the directory that will be replaced, which nobody can exchange for another any more.
  void check_same(const Folder& replaced) const;

  const ConvertOptions& options_;
  PackedCheckpoint& out_;
};

}  // namespace mxfp4
