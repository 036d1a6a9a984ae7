// Carries out the jobs of a conversion.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "src/base/phase_times.h"
#include "src/base/progress.h"
#include "src/convert/contents.h"
#include "src/convert/convert.h"
#include "src/convert/job_record.h"
#include "src/convert/scale_check.h"
#include "src/convert/source_hashes.h"
#include "src/device/device_sums.h"
#include "src/device/pipeline.h"
#include "src/io/open_files.h"
#include "src/io/output.h"
#include "src/packed/checksums.h"
#include "src/packed/manifest.h"
#include "src/packed/source.h"
#include "src/plan/pieces.h"

namespace mxfp4 {

/// Carries out the jobs of a plan: reads, packs, hashes, writes. After the first tensor that cannot be packed, only
/// scales are checked, so that one run reports every bad tensor.
class Conversion {
 public:
  /// known: a manifest with the expected checksums of the source's tensors, or null.
  Conversion(const Plan& plan, const ConvertOptions& options, const DeviceChoice& devices, Source& source,
             OutputDir& out, const Manifest* known)
      : plan_(plan),
        options_(options),
        devices_(devices),
        source_(source),
        out_(out),
        known_(known),
        sums_(plan),
        counts_(plan.jobs.size()),
        others_jobs_(plan.jobs.size()),
        others_files_(plan.files.size()),
        files_(
            plan.files.size(), [this](size_t file) { return DirectFile(open_file(file), writes_); },
            [](DirectFile& f) { f.finish(); }),
        scales_(plan, source.reader(), sums_, options.model.allow_incomplete, problems_) {}

  /// Excludes jobs and files of other parts: they are neither carried out nor written.
  void leave_out(std::vector<bool> jobs, std::vector<bool> files) {
    others_jobs_ = std::move(jobs);
    others_files_ = std::move(files);
  }
  /// Requires these hashes of the source's shards. Both arguments must outlive this object. If the shards are on a
  /// server, some are compared: see compared().
  void compare_with(const Checkpoint& files, const PublishedList& published) {
    if (!files.remote && !published.empty()) hashes_.emplace(files, published);
    if (files.remote) published_ = published;
  }
  /// The shards on a server whose hashes carry_out_jobs() has compared, because their bytes arrived in order.
  const std::set<std::string>& compared() const { return compared_; }
  void carry_out_jobs();

  /// Hashes the bytes that carry_out_jobs() has not hashed. Throws Error{input} if a shard does not have its published
  /// hash.
  void end_hashes();

  /// Reads the journal. Returns true for every finished job.
  std::vector<bool> read_journal();

  const Checksums& checksums() const { return sums_; }
  /// Whether unintended contents were found and allowed.
  bool has_damage() const { return has_damage_; }
  int64_t zero_scales() const { return total().zero_scales; }
  RewriteLoss loss() const { return total().loss; }
  /// Seconds of each phase, summed over threads.
  Json seconds() const { return phases_.seconds(); }
  /// How the first written file was written. Empty if all files existed.
  std::optional<WriteWay> write_way() const { return write_way_; }

 private:
  JobCounts total() const;
  /// Keeps the bytes that an earlier run has written.
  Fd open_file(size_t file) const;
  /// How files with this total size are written.
  Writes writes_of(int64_t bytes) const;
  void open_files();
  /// All jobs, except those in the journal whose bytes on disk match their checksums.
  std::vector<int64_t> jobs_left();
  /// Calls work(). If the source cannot be packed, or has changed, the finished jobs are discarded before the error is
  /// thrown.
  void drop_if_refused(const std::function<void()>& work);
  void check_source();
  /// False if a file of the source is missing, because it may come back.
  bool is_source_changed() const;
  /// Carries out a job. Returns the number of bytes read or written.
  int64_t carry_out(Worker& worker, const PackJob& job, JobCounts& counts);
  int64_t carry_out(Worker& worker, const CopyJob& job, JobCounts&);
  /// Hashes and scans the bytes of a job's pieces during the read.
  struct PassedBytes {
    PieceHasher hasher;
    NumberScanner scanner;
  };
  PassedBytes passed_bytes(const Pieces& pieces);
  void read(Worker& worker, const Pieces& pieces, uint8_t* to, PassedBytes& passed);
  /// Copies pieces of one file, or a part of one piece.
  int64_t copy(Worker& worker, const Pieces& pieces, PassedBytes& passed);
  /// Records the largest buffers that these jobs need.
  void measure(const std::vector<int64_t>& jobs);
  /// Reserve the worker's source and packed buffers, see Buffer::reserve(). The first reservation is as large as any
  /// job needs, because a growing buffer would be allocated again each time.
  uint8_t* source_buffer(Worker& worker, int64_t bytes, int64_t offset) const;
  uint8_t* packed_buffer(Worker& worker, int64_t bytes, int64_t offset) const;
  /// Carries out all of these jobs, in order. With published hashes, they follow the order of the files.
  void run_all(std::vector<int64_t> jobs, Progress& progress);
  /// Compares the hashes of shards that arrived from a server.
  void compare_arrived();
  void run_job(Worker& worker, int64_t index, Progress& progress);
  /// The canonical scales of the same experts, which lossy backends need to rewrite codes.
  std::vector<uint8_t> canonical_scales(Worker& worker, const Pieces& codes);
  /// The input of a packing job. scales: see canonical_scales(). sums: checksums of the source that the device will
  /// make.
  struct Input {
    const Pieces& pieces;
    const uint8_t* canonical;
    JobCounts& counts;
    std::vector<uint8_t> scales;
    DeviceSums sums;
  };
  bool device_makes_checksums(const Worker& worker) const;
  int64_t pack_rank(Worker& worker, const PackJob& job, size_t target, const Input& input);
  /// A sink that calls `hasher`, timed as a separate phase within reading or writing.
  DirectFile::BlockSink hashing(PieceHasher& hasher);
  void write(int file, const uint8_t* data, int64_t bytes, int64_t offset, const DirectFile::BlockSink& sink = {});
  /// Converts the pieces to canonical form; returns `source` itself if the bytes are the same.
  const uint8_t* canonical_form(Worker& worker, const Pieces& pieces, uint8_t* source, JobCounts& counts);

  const Plan& plan_;
  const ConvertOptions& options_;
  const DeviceChoice& devices_;
  Source& source_;
  OutputDir& out_;
  const Manifest* known_;
  std::optional<SourceHashes> hashes_;
  PublishedList published_;  // of shards on a server
  std::set<std::string> compared_;
  Checksums sums_;
  std::vector<JobCounts> counts_;
  std::vector<bool> others_jobs_, others_files_;
  Writes writes_ = Writes::direct;
  OpenFiles files_;
  std::vector<bool> is_linked_;  // for each file: a link to the source's bytes
  std::optional<WriteWay> write_way_;
  PhaseTimes phases_;
  std::atomic<bool> failed_ = false;
  bool has_damage_ = false;
  int64_t most_source_ = 0, most_packed_ = 0;  // the largest of all jobs, in bytes
  Problems problems_;
  ScaleCheck scales_;
};

}  // namespace mxfp4
