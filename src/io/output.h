// An output directory that appears whole or not at all: built beside its place, synced, renamed.
//
// The folder above and the directory that is built are held by descriptors, and all names are looked up below these. So
// another user who may rename what stands in the folder above can end a run, but cannot have it write or remove
// anything elsewhere.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/signals.h"
#include "src/io/journal.h"
#include "src/io/leftover.h"
#include "src/io/link.h"
#include "src/io/permitted.h"
#include "src/io/place.h"
#include "src/io/privacy.h"
#include "src/io/replaced.h"

namespace mxfp4 {

/// What becomes of a directory that is there. refuse: an error unless it is empty; replace: only where this tool made
/// every file in it; set_aside: the same, and it is kept beside, as NAME.kept-N; extend: the caller has linked what
/// stays.
enum class Existing { refuse, replace, set_aside, extend };

/// What a run is given, as checksums, and how it begins. An interrupted run that was given the same is continued.
struct OpenOptions {
  static constexpr const char* never_continued = "-";

  Existing existing = Existing::refuse;
  std::string options = never_continued, source = "-";
  std::vector<std::string> made = {};  // the relative names of all files that the run makes
  int64_t bytes = 0;                   // that the run writes in all
  bool takes_parts = false;            // parts of OUT go into it; else they are in the way
  bool even_in_use = false;            // also while other nodes may be writing parts
  bool discards_other = false;         // what an interrupted run of another command left, and its parts, are removed
  std::optional<Permitted> permitted = {};  // by the source; none: by the directory that is replaced
};

class OutputDir {
 public:
  /// Locks the place: from here on no other run writes there. Whoever will write takes the lock before it reads
  /// anything of OUT. Refuses an OUT that another run is writing. Finishes what a run left that was cut short after its
  /// output came into its place. out: what messages call OUT. made: null for outputs that are never replaced.
  OutputDir(Place place, const std::string& out, ListOwn made = nullptr);
  /// A folder for one part of the output at `place`, among its parts (parts.h): under a name that no other run has, and
  /// without a lock. It is never continued.
  static OutputDir for_part(const Place& place, const std::string& part);
  /// Removes what a run left beside `place`, and puts an old output back if its place is empty. As the constructor it
  /// takes the lock and finishes what a finished output left. Throws Error{usage} if something there is not this
  /// tool's.
  static void clean(Place place, ListOwn made);
  /// Removes what was built, unless committed or kept.
  ~OutputDir();
  OutputDir(const OutputDir&) = delete;

  /// Refuses an existing OUT unless `start.existing` permits it. Continues in the staging directory of an interrupted
  /// run that was given the same; refuses that of another run with a finished step, unless `start` discards it. Throws
  /// Error{io} if the file system has no space for `start.bytes`; nothing is removed before that check. Files that are
  /// made after this call are as private as the source's most private file (permitted.h).
  void open(const OpenOptions& start = {});

  /// The staging directory. Throws Error{io} if somebody removed it.
  const Folder& built() const;
  /// Creates a file of `bytes` bytes, its space reserved if the file system can, except on tmpfs. What the run that
  /// this one continues wrote to it stays; anything else of that name goes first, so that nothing is ever written
  /// through a link. Its folders are made.
  Fd create(const std::string& name, int64_t bytes) const;
  /// Creates a file that is written from front to back.
  Fd create_text(const std::string& name) const;
  /// The same, written and synced.
  void write_text(const std::string& name, std::string_view text) const;
  /// Makes `name` a link of an open file of the source. False if it is to be copied; throws Error{io} if Link::hard or
  /// Link::reflink is asked for and cannot be.
  bool link(Link how, const Fd& file, const std::string& name) const;
  /// Makes `name` a hard link of a file, or of a link, of the same name in another folder; 0 or errno.
  int link_from(const Folder& from, const std::string& name) const;
  /// Copies such a file or link, synced, and as public as it was.
  void copy_from(const Folder& from, const std::string& name) const;
  /// Moves a file here that another run made.
  void take(const Folder& from, const std::string& name) const;
  /// The directory that will be replaced, from open() on; null if there is none.
  const Folder* replaced() const { return old_ ? &old_->folder : nullptr; }
  /// The finished jobs of this run and of those that it continues.
  Journal& journal() { return journal_; }
  /// Whether an error from here on leaves a partial output that can be continued, if a job is finished.
  void keep(bool keep) { keep_ = keep && !is_part_; }
  /// True where a run that this one continues was cut short after the directory came into its place.
  bool committed() const { return committed_; }
  /// True where such a run was found, whatever it was given: what it left is tidied up.
  bool finished() const { return finished_; }
  /// Where what was set aside is; empty: nothing was.
  const std::string& kept() const { return kept_; }
  /// Refuses a file that others put into what was built. Syncs every folder and puts the directory in its place. proof:
  /// a file of it whose contents are this run's alone, by which a later run knows the output again; may be empty. A
  /// predecessor that is not set aside goes afterwards; files that others put there meanwhile are moved into the new
  /// directory.
  void commit(const std::string& proof = {});

 private:
  OutputDir(Place place, bool is_part, const std::string& out, ListOwn made);
  void look_at_parts(const OpenOptions& start) const;
  std::string how_to_clean() const;
  void remove_finished_journal();
  [[noreturn]] void fail_removed() const;
  [[noreturn]] void fail_changed() const;
  bool take_over(const OpenOptions& start);
  void look_at_predecessor();
  void begin(const OpenOptions& start);
  void put_back();
  void make_folders(const std::string& name) const;
  HeldFolder hold(const std::string& name) const { return {place_.above, name}; }
  bool is_partial_ours() const;
  bool is_replaced(const HeldFolder& old) const;
  void check_is_ours(const HeldFolder& dir) const;
  void check_not_whole(const HeldFolder& dir) const;
  void remove_leftover(const HeldFolder& dir);
  void set_aside();
  void rename_into_place();
  void check_in_place();
  void sync_built();
  void remove_replaced(const HeldFolder& old, const Folder& fresh, const IsOwn& is_own);
  void end();

  std::optional<SignalsDeferred> deferred_;  // since open(), until all else is gone
  Place place_;
  std::string name_;  // as the user calls it
  std::string kept_;
  HiddenNames hidden_;
  ListOwn made_;
  Journal journal_;
  std::optional<HeldFolder> partial_;  // what is built
  std::optional<HeldFolder> old_;      // what will be replaced
  Snapshot before_;                    // of it
  Privacy privacy_;
  std::optional<mode_t> old_mode_;
  bool finished_ = false;  // the journal belongs to a run whose output is in its place
  bool is_part_ = false, replace_ = false, set_aside_ = false, keep_ = false, committed_ = false;
  bool built_ = false;  // the partial directory is this run's
};

}  // namespace mxfp4
