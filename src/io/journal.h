// What an unfinished conversion has done: one line per finished job, in a hidden file beside OUT that is also its lock.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/checksum.h"
#include "src/base/folder.h"

namespace mxfp4 {

/// What a run is given, and the directory it builds; only a run given the same may continue in that directory.
struct JournalHead {
  std::string options = {}, source = {};  // checksums
  std::string run = {};                   // random; the directory has it in a file
  std::vector<std::string> made = {};     // the relative names of the files that the run makes
};
/// `run` and `made` as one line, and back.
std::string line_of(const JournalHead& head);
void read_run_line(const std::string& line, JournalHead& head);

/// Identifies a finished directory by the checksum of one of its files, and the directory that it replaces by the
/// checksum of the file of the same name. A later run removes files of no other directory.
struct Proof {
  std::string file, checksum;  // empty: the directory was not finished
  std::string replaced = {};   // empty: there was no such file
};

/// What a journal says. Not begun: no head; then there are no records either.
struct JournalText {
  bool begun = false;
  bool foreign = false;  // another version's
  bool strange = false;  // nothing that any version writes, nor the beginning of it
  JournalHead head;
  std::map<int64_t, std::string> records;
  Proof proof;
  int64_t end = 0;  // of the last whole line
};
JournalText read_journal(const Fd& fd);

/// Whether a lock was taken, another process has it, or the file system has none.
enum class Lock { taken, held, none };
/// shared: one that other readers may have too; it ends with the descriptor.
Lock take_lock(const Fd& fd, bool shared = false);

class Journal {
 public:
  /// Opens or makes the file, this user's alone, and locks it for the life of this object; the system drops the lock of
  /// a dead process. Throws Error{usage} if another run holds it, or the file is a link or another user's. The folder
  /// must outlive this. out: what messages call the output.
  Journal(const Folder& folder, std::string name, const std::string& out);
  /// Removes the file where nothing was begun.
  ~Journal();
  Journal(const Journal&) = delete;

  bool begun() const { return text_.begun; }
  const JournalHead& head() const { return text_.head; }
  /// Job to what add() was given.
  const std::map<int64_t, std::string>& records() const { return text_.records; }
  const Proof& proof() const { return text_.proof; }
  bool is_foreign() const { return text_.foreign; }
  /// Whether the file is still there: it is the lock.
  bool is_in_place() const;
  /// False where the file system has no locks.
  bool is_locked() const { return lock_ == Lock::taken; }

  /// Synced where a directory was finished: if its proof came back after a loss of power, the next partial directory
  /// would be taken for one that was replaced.
  void clear();
  void begin(const JournalHead& head);
  /// From here on the directory may be in its place.
  void finish(const Proof& proof);
  /// One line. A line that a crash cuts short is not read again, so that nothing needs to be synced: what a power loss
  /// takes is done again, and what the lines promise is compared with the data. From any thread.
  void add(int64_t job, const std::string& record);
  /// Brings all lines to disk.
  void sync() const { fd_.sync(); }
  /// But where somebody else has put another in its place.
  void remove();

 private:
  void truncate();
  void append(const std::string& text);

  const Folder& folder_;
  std::string name_;
  Fd fd_;
  Lock lock_ = Lock::none;
  JournalText text_;
  std::mutex mutex_;
};

}  // namespace mxfp4
