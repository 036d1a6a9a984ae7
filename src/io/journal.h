// The finished jobs of an unfinished conversion: one line per job, in a file that is also the lock of OUT.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/checksum.h"
#include "src/base/folder.h"

namespace mxfp4 {

/// The inputs of a run, and the staging directory that it builds. A run may continue in that directory only if its
/// inputs are the same.
struct JournalHead {
  std::string options = {}, source = {};  // checksums
  std::string run = {};                   // random; a file in the directory repeats it
  std::vector<std::string> made = {};     // the relative names of the files that the run makes
  std::string inputs = "{}";              // JSON on one line: what the checksums are of, for messages
};
/// `run` and `made` as one line, and back.
std::string line_of(const JournalHead& head);
void read_run_line(const std::string& line, JournalHead& head);

/// The contents of a journal. If it is not begun, it has no head and no records.
struct JournalText {
  bool begun = false;
  bool foreign = false;  // another version's
  bool strange = false;  // no version writes such text
  JournalHead head;
  std::map<int64_t, std::string> records;
  bool damaged = false;   // whole lines follow one that is wrong
  bool finished = false;  // the output is whole and may be published
  std::string list = {};  // the file that lists the files of the replaced output
  int64_t end = 0;        // of the last whole line
};
JournalText read_journal(const Fd& fd);

/// Whether a lock was taken, another process has it, or the file system has none.
enum class Lock { taken, held, none };
/// shared: a lock that other readers may have at the same time. Closing the descriptor releases it.
Lock take_lock(const Fd& fd, bool shared = false);

class Journal {
 public:
  /// Opens or creates the file, private to this user, and locks it for the life of this object; the system drops the
  /// lock of a dead process. Throws Error{usage} if another run holds the lock, or if the file is not this user's
  /// alone. The folder must outlive this object. out: the output's name in messages.
  Journal(const Folder& folder, std::string name, const std::string& out);
  /// Removes the file if begin() was not called.
  ~Journal();
  Journal(const Journal&) = delete;

  bool begun() const { return text_.begun; }
  const JournalHead& head() const { return text_.head; }
  /// Each job's record, as given to add().
  const std::map<int64_t, std::string>& records() const { return text_.records; }
  const JournalText& text() const { return text_; }
  /// Whether the file still has its name. Without the name it locks nothing.
  bool is_in_place() const;
  /// False if the file system has no locks.
  bool is_locked() const { return lock_ == Lock::taken; }

  /// Empties the journal. Syncs it if it is finished: if its last line came back after a power loss, the next run's
  /// directory would look like a replaced output.
  void clear();
  void begin(const JournalHead& head);
  /// Records on disk that the output is whole. It may be published after this call. list: see JournalText.
  void finish(const std::string& list);
  /// Appends one line, from any thread. It is not synced. A line that a crash cuts short is ignored, so after a power
  /// loss its job is repeated. A continued run compares each record with the data.
  void add(int64_t job, const std::string& record);
  /// Brings all lines to disk.
  void sync() const { fd_.sync(); }
  /// Removes the file, unless another file has its name.
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
