// An output directory that appears complete or not at all: it is built in a staging directory beside its place
// (stage.h), synced and renamed.
//
// Descriptors hold the folder above and the staging directory, and all names are looked up below these. Another user
// who may rename entries of the folder above can end a run, but cannot make it write or remove anything elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/base/signals.h"
#include "src/io/journal.h"
#include "src/io/link.h"
#include "src/io/place.h"
#include "src/io/privacy.h"
#include "src/io/stage.h"

namespace mxfp4 {

class SourceFolder;

/// How to treat an existing directory:
/// - refuse: Fail unless it is empty.
/// - replace: Replace it if this tool made every file in it.
/// - extend: Replace it; the caller has linked the files that stay.
enum class Existing { refuse, replace, extend };

/// The inputs of a run, as checksums, and how it begins. A run with the same inputs continues an interrupted run.
struct OpenOptions {
  static constexpr const char* never_continued = "-";

  Existing existing = Existing::refuse;
  std::string options = never_continued, source = "-";
  Json inputs = Json::object();        // what both are of, to name a difference
  std::vector<std::string> made = {};  // the relative names of all files that the run makes
  int64_t bytes = 0;                   // all that the run writes
  bool takes_parts = false;            // the run uses parts of OUT; else parts are an error
  bool even_in_use = false;            // other nodes may be writing parts at the same time
  bool discards_other = false;         // removes leftovers and parts of an interrupted other command
  std::shared_ptr<const SourceFolder> source_folder = {};  // limits the modes; none: the replaced directory does
};

class OutputDir {
 public:
  /// Locks the place: no other run writes there during the life of this object. Take the lock before anything of OUT is
  /// read. Throws Error{usage} if another run is writing OUT. If a run was interrupted after it published its output,
  /// this removes its leftovers. out: OUT's name in messages. made: null for outputs that are never replaced.
  OutputDir(Place place, const std::string& out, ListOwn made = nullptr);
  /// A folder for one part of the output at `place`, among its parts (parts.h). Its name is unique, so no other run
  /// waits for its lock.
  /// It is never continued.
  static OutputDir for_part(const Place& place, const std::string& part);
  /// Removes a run's leftovers beside `place`, and restores an old output if its place is empty. Like the constructor,
  /// it takes the lock and removes the leftovers of a published output. Throws Error{usage} if this tool did not make
  /// one of the leftovers, or if an old output is left behind.
  static void clean(Place place, ListOwn made);
  /// Removes the files of this run, unless they are published or kept.
  ~OutputDir();
  OutputDir(const OutputDir&) = delete;

  /// Refuses an existing OUT unless `start.existing` permits it. Continues an interrupted run with the same inputs.
  /// Refuses if an interrupted run with other inputs has a finished step, unless `start` discards that run. Throws
  /// Error{io} if the file system has no space for `start.bytes`; nothing is removed before that check. Files that are
  /// made after this call are as private as the source's most private file (permitted.h), and OUT itself as it is at
  /// the end.
  void open(const OpenOptions& start = {});

  /// The directory that this run builds. Throws Error{io} if somebody removed it.
  const Folder& built() const;
  /// Creates a file of `bytes` bytes, and the folders above it. Reserves its space if the file system can, except on
  /// tmpfs. If this run continues another, the file keeps the bytes that the other run wrote. Anything else with that
  /// name is removed first, so that nothing is written through a link.
  Fd create(const std::string& name, int64_t bytes) const;
  /// Creates a file that is written from front to back.
  Fd create_text(const std::string& name) const;
  /// Creates, writes and syncs a file.
  void write_text(const std::string& name, std::string_view text) const;
  /// Makes `name` a copy of an open file of the source. Both share blocks until one is written. If the file system has
  /// no such copies, the name becomes a hard link. Returns false if the file is to be copied.
  bool link(const Fd& file, const std::string& name) const;
  /// Makes `name` a hard link to the file or link with the same name in another folder. Returns 0 or errno.
  int link_from(const Folder& from, const std::string& name) const;
  /// Copies the file or link with that name from another folder, with its permissions, and syncs the copy.
  void copy_from(const Folder& from, const std::string& name) const;
  /// Moves a file of another run into the directory.
  void take(const Folder& from, const std::string& name) const;
  /// The directory that will be replaced, valid after open(); null if there is none.
  const Folder* replaced() const { return old_ ? &old_->folder : nullptr; }
  /// The finished jobs of this run and of the runs that it continues.
  Journal& journal() { return *journal_; }
  /// Whether a later error leaves the directory for a run that continues, if a job is finished.
  void keep(bool keep) { keep_ = keep && !is_part_; }
  /// Whether the run that this one continues had published the directory.
  bool committed() const { return committed_; }
  /// Whether any run, also one with other inputs, was interrupted after it published its output. Its leftovers are
  /// removed.
  bool finished() const { return finished_; }
  /// Publishes the directory: syncs every folder and renames the directory to its place. Throws if another user added a
  /// file to it. Afterwards the replaced output is removed. Files that others added to the
  /// replaced output in the meantime move into the new directory. list: the file of an output that lists its files.
  void commit(const std::string& list = {});

 private:
  OutputDir(Place place, bool is_part, const std::string& out, ListOwn made);
  void lock();
  void finish_earlier(const Folder& now);
  bool is_left() const;
  void make_new_writable() const;
  void look_at_parts(const OpenOptions& start) const;
  std::string how_to_clean() const;
  void say_why_begun() const;
  void end_journal();
  [[noreturn]] void fail_removed() const;
  [[noreturn]] void fail_changed() const;
  bool take_over(const OpenOptions& start);
  void look_at_predecessor();
  [[noreturn]] void fail_existing() const;
  void begin(const OpenOptions& start);
  void put_back();
  void make_folders(const std::string& name) const;
  StageState state() const;
  void check_is_ours(const HeldFolder& dir) const;
  void remove_leftover();
  HeldFolder staged(const std::string& name) const { return {stage_->folder, name}; }
  bool is_in_place() const;
  void swap_into_place();
  void rename_into_place();
  void sync_built();
  void remove_replaced(const HeldFolder& old, const Folder& fresh, const IsOwn& is_own);
  void end();

  std::optional<SignalsDeferred> deferred_;  // from open() to the end of this object; the last member to be destroyed
  Place place_;
  std::string name_;  // in messages
  ListOwn made_;
  std::optional<HeldFolder> stage_;  // the staging directory
  std::optional<Journal> journal_;
  std::optional<HeldFolder> new_;  // the directory that is built
  std::optional<HeldFolder> old_;  // the output that will be replaced
  Snapshot before_;                // of old_
  mode_t mode_ = 0;                // of the published directory, while only its owner can write in it
  Privacy privacy_;
  std::shared_ptr<const SourceFolder> source_folder_;
  bool keeps_mode_ = false;  // that of the directory that is replaced
  bool finished_ = false;    // the journal belongs to a run whose output is in its place
  bool is_part_ = false, replace_ = false, keep_ = false, committed_ = false;
  bool built_ = false;  // new_ is this run's
};

}  // namespace mxfp4
