// The jobs of a conversion, carried out.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "src/base/phase_times.h"
#include "src/base/progress.h"
#include "src/convert/contents.h"
#include "src/convert/convert.h"
#include "src/convert/job_order.h"
#include "src/convert/job_record.h"
#include "src/convert/source_hashes.h"
#include "src/device/device_sums.h"
#include "src/device/pipeline.h"
#include "src/io/open_files.h"
#include "src/io/output.h"
#include "src/packed/manifest.h"
#include "src/packed/source.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

/// Carries out the jobs of a plan: reads, packs, hashes, writes. What the data refuse is collected, and from then on
/// scales are only checked, so that one run names every bad tensor.
class Conversion {
 public:
  /// known: a manifest whose checksums the source's tensors must have, or null.
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
            [this](DirectFile& f) { f.finish(options_.sync); }) {}

  /// Jobs that others carry out, or have carried out, and files that they write: neither is touched.
  void leave_out(std::vector<bool> jobs, std::vector<bool> files) {
    others_jobs_ = std::move(jobs);
    others_files_ = std::move(files);
  }
  /// The source's shards must have these hashes. Both must live as long.
  void compare_with(const Checkpoint& files, const PublishedList& published) {
    if (!published.empty()) hashes_.emplace(files, published);
  }
  void run();

  /// Hashes what run() has not; throws Error{input} if a shard does not have its hash.
  void end_hashes();

  /// Reads the journal: true at every job that is written down.
  std::vector<bool> read_journal();

  const Checksums& checksums() const { return sums_; }
  /// Whether contents that nobody means were found and allowed.
  bool has_damage() const { return has_damage_; }
  int64_t zero_scales() const { return total().zero_scales; }
  RewriteLoss loss() const { return total().loss; }
  /// Seconds of each stage, summed over threads.
  Json seconds() const { return phases_.seconds(); }
  /// How the first of the files was written that had bytes to write; none: all was there already.
  std::optional<WriteWay> write_way() const { return write_way_; }
  /// What pack_in_place() packed.
  int64_t in_place_bytes() const { return in_place_bytes_; }

 private:
  JobCounts total() const;
  /// What was written to it before stays.
  Fd open_file(size_t file) const;
  /// How files of so many bytes in all are written.
  Writes writes_of(int64_t bytes) const;
  void open_files();
  /// All but those that the journal has and whose bytes on disk are what it says.
  std::vector<int64_t> jobs_left();
  /// Names the files that have bytes of finished jobs which are not good.
  void note_damaged(const std::vector<bool>& done, const std::vector<uint8_t>& good) const;
  bool is_on_disk(Worker& worker, const PackJob& job);
  bool is_on_disk(Worker& worker, const CopyJob& job);
  /// Whether bytes of a file of the output have this hash.
  bool has_hash(Worker& worker, size_t file, int64_t offset, int64_t bytes, const Hash& hash);
  /// Does work(), after which a source that holds what cannot be packed, or that changed, leaves nothing to go on with.
  void drop_if_refused(const std::function<void()>& work);
  void check_source();
  /// Not where a file of it is gone, which may come back.
  bool is_source_changed() const;
  /// The bytes that a job moved.
  int64_t carry_out(Worker& worker, const PackJob& job, JobCounts& counts);
  int64_t carry_out(Worker& worker, const CopyJob& job, JobCounts&);
  /// What sees the bytes of a job's pieces as they are read.
  struct PassedBytes {
    PieceHasher hasher;
    NumberScanner scanner;
  };
  /// Pieces that lie one after the other, or a part of one.
  int64_t copy(Worker& worker, std::span<const CopyPiece> pieces, PassedBytes& passed);
  /// Notes the largest buffers that these jobs need.
  void measure(const std::vector<int64_t>& jobs);
  /// As Buffer::reserve(), of the worker's source and packed buffers. The first one is as large as any job needs: one
  /// that grew would be new memory each time.
  uint8_t* source_buffer(Worker& worker, int64_t bytes, int64_t offset) const;
  uint8_t* packed_buffer(Worker& worker, int64_t bytes, int64_t offset) const;
  /// Carries out all batches. With published hashes they follow the order of the files, else the page cache's contents.
  /// Batches of a packed source follow their numbers.
  void carry_out(const std::vector<std::vector<int64_t>>& batches, Progress& progress);
  /// A batch of jobs, all together or one after the other.
  void carry_out_batch(Worker& worker, const std::vector<int64_t>& batch, Progress& progress);
  /// Whether pack_in_place() can pack anything of this conversion, by what is open.
  bool may_pack_in_place() const;
  /// A batch of codes that a GPU reads where the page cache has them and writes into a file in memory; the bytes that
  /// were packed, 0 where that cannot be.
  int64_t pack_in_place(Worker& worker, const std::vector<int64_t>& batch);
  /// Of the same experts, canonical: lossy backends rewrite codes by them.
  std::vector<uint8_t> canonical_scales(Worker& worker, const Pieces& codes);
  /// What a job is packed from; scales: see canonical_scales(), sums: of the source that are still to be made.
  struct Input {
    const Pieces& pieces;
    const uint8_t* canonical;
    JobCounts& counts;
    std::vector<uint8_t> scales;
    DeviceSums sums;
  };
  bool device_makes_checksums(const Worker& worker) const;
  int64_t pack_rank(Worker& worker, const PackJob& job, size_t target, const Input& input);
  /// `hasher`, timed as a stage of its own within reading or writing.
  DirectFile::BlockSink hashing(PieceHasher& hasher);
  void write(int file, const uint8_t* data, int64_t bytes, int64_t offset, const DirectFile::BlockSink& sink = {});
  /// The pieces in canonical form: `source` itself where the bytes are the same.
  const uint8_t* canonical_form(Worker& worker, const PackJob& job, const Pieces& pieces, uint8_t* source,
                                JobCounts& counts);
  void check_scales(const PackJob& job, const PieceAt& p, const ScaleReport& r, JobCounts& counts);
  /// The first scale 0.0 of the piece whose 32 codes are not all zero; -1 where there is none.
  int64_t first_nonzero_group(const PackedTensor& t, const PieceAt& p);
  /// Names file, tensor, expert, row and group of scale `index` of a piece.
  void complain(const PackedTensor& t, const PieceAt& p, int64_t index, const std::string& what);

  const Plan& plan_;
  const ConvertOptions& options_;
  const DeviceChoice& devices_;
  Source& source_;
  OutputDir& out_;
  const Manifest* known_;
  std::optional<SourceHashes> hashes_;
  Checksums sums_;
  std::vector<JobCounts> counts_;
  std::vector<bool> others_jobs_, others_files_;
  Writes writes_ = Writes::direct;
  OpenFiles files_;
  std::vector<bool> is_linked_;  // of each file: its bytes are the source's own
  std::optional<WriteWay> write_way_;
  PhaseTimes phases_;
  std::atomic<bool> failed_ = false;
  bool has_damage_ = false;
  bool in_memory_ = false, in_place_ = false;  // in_memory_: some of the files
  int64_t most_source_ = 0, most_packed_ = 0;  // bytes of a job
  std::atomic<int64_t> in_place_bytes_ = 0;
  std::mutex mutex_;
  Problems problems_;
};

}  // namespace mxfp4
