// What an unfinished conversion has done: one line per finished job, in a hidden file beside OUT that is also its lock.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "src/base/checksum.h"
#include "src/base/file.h"

namespace mxfp4 {

/// What a run is given, and the directory it builds; only a run given the same may continue in that directory.
struct JournalHead {
  std::string options, source;  // checksums
  std::string run;              // random; the directory has it in a file
};

/// A file of a finished directory and its checksum, by which the directory is known again.
struct Proof {
  std::string file, checksum;  // empty: the directory was not finished
};

class Journal {
 public:
  /// Opens or makes the file and locks it for the life of this object; the system drops the lock of a dead process.
  /// Throws Error{usage} where another run holds it, and where the file is a link or another user's. out: what messages
  /// call the output.
  Journal(std::string path, const std::string& out);
  /// Removes the file where nothing was begun.
  ~Journal();
  Journal(const Journal&) = delete;

  /// False: no head; then there are no records either.
  bool begun() const { return begun_; }
  const JournalHead& head() const { return head_; }
  /// Job to what add() was given.
  const std::map<int64_t, std::string>& records() const { return records_; }
  const Proof& proof() const { return proof_; }
  /// There is something that this version does not understand.
  bool is_foreign() const { return foreign_; }

  /// Durable where a directory was finished: were the proof to come back after a loss of power, the next partial
  /// directory would be taken for what a finished one has replaced.
  void clear();
  void begin(const JournalHead& head);
  /// From here on the directory may be in its place.
  void finish(const Proof& proof);
  /// One line. A line that a crash cuts short is not read again, so that nothing needs to be synced: what a power loss
  /// takes is done again, and what the lines promise is compared with the data. From any thread.
  void add(int64_t job, const std::string& record);
  void remove();

 private:
  void read();
  bool read_line(const std::string& text);
  void truncate();
  void append(const std::string& text);

  std::string path_;
  Fd fd_;
  bool begun_ = false, foreign_ = false;
  JournalHead head_;
  Proof proof_;
  std::map<int64_t, std::string> records_;
  int64_t end_ = 0;
  std::mutex mutex_;
};

}  // namespace mxfp4
