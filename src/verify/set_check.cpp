#include "src/verify/set_check.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>

#include "src/base/progress.h"
#include "src/device/pipeline.h"
#include "src/packed/checksums.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/deal.h"
#include "src/plan/jobs.h"
#include "src/plan/pieces.h"
#include "src/plan/rewrite.h"
#include "src/plan/transfer.h"
#include "src/verify/original.h"
#include "src/verify/wrong_bytes.h"

namespace mxfp4 {

namespace {

constexpr int64_t compared_block = int64_t(1) << 20;  // fits into caches twice, and keeps a disk busy
constexpr int64_t least_later = 64 << 10;             // for smaller chunks a look at the page cache costs too much

class SetCheck {
 public:
  SetCheck(const PackedCheckpoint& p, const PackedSet& set, const Original& source, const VerifyOptions& options,
           Level level, const DeviceChoice& devices)
      : p_(p),
        set_(set),
        plan_(set.plan),
        source_(source),
        options_(options),
        level_(level),
        devices_(devices),
        part_of_(deal(set.plan, options.part.count).of_file),
        out_(p.files, CacheRoom(options.page_cache)),
        sums_(set.plan) {}

  SetReport run() {
    const bool first = &set_ == &p_.sets.front();
    Progress progress("verifying", data_bytes(first));
    run_jobs(
        int64_t(plan_.jobs.size()), options_.threads,
        [&](Worker& worker, int64_t i) {
          const Job& job = plan_.jobs[size_t(i)];
          const auto* pack = std::get_if<PackJob>(&job);
          if ((!pack && !first) || !is_mine(files_of(plan_, job).front())) return;
          progress.add(pack ? check_packed(worker, *pack) : check_copied(worker, std::get<CopyJob>(job)));
        },
        devices_);
    for (size_t i = 0; first && i < plan_.copied.size(); ++i)
      if (is_mine(plan_.copied[i].file.value()))
        compare_checksum(p_.copied[i], sums_.copied.hashes[i], to_hex(p_.manifest.checksum_of(p_.copied[i].name)));
    for (size_t i = 0; i < plan_.packed.size(); ++i)
      if (is_mine(plan_.packed[i].file)) check_sums(i);
    if (plan_.backend->rewrite && level_ >= Level::bytes && options_.part.count == 1)
      compare_loss(p_.manifest.sets[size_t(&set_ - p_.sets.data())]);
    std::sort(lines_.begin(), lines_.end());
    return {std::move(lines_), other_source()};
  }

 private:
  /// See SetReport. A wrong layout changes no copied tensor.
  std::string other_source() const {
    int64_t packed = 0, other_packed = 0, copied = 0, other_copied = 0;
    for (size_t i = 0; i < plan_.packed.size(); ++i) {
      if (plan_.packed[i].rank != 0 || !is_mine(plan_.packed[i].file)) continue;
      ++packed;
      other_packed += int64_t(not_the_sources_.count(&set_.stored[i]));
    }
    for (size_t i = 0; i < plan_.copied.size(); ++i) {
      if (!is_mine(plan_.copied[i].file.value())) continue;
      ++copied;
      other_copied += int64_t(not_the_sources_.count(&p_.copied[i]));
    }
    if (is_damaged_ || 2 * other_packed <= packed || 2 * other_copied <= copied) return {};
    return fmt::format(
        "not the checkpoint that {0} was made from: {1} of {2} packed and {3} of {4} copied tensors differ "
        "here; {0} itself matches its manifest",
        options_.out, other_packed, packed, other_copied, copied);
  }

  /// Whether this part checks a file. A file with all its tensors belongs to one part, and so do the files of all ranks
  /// of a tensor.
  bool is_mine(int file) const { return part_of_[size_t(file)] == options_.part.index; }

  int64_t data_bytes(bool with_copied) const {
    int64_t bytes = 0;
    for (const PackedTensor& t : plan_.packed)
      if (is_mine(t.file)) bytes += t.bytes;
    for (size_t i = 0; with_copied && i < plan_.copied.size(); ++i)
      if (is_mine(plan_.copied[i].file.value())) bytes += p_.copied[i].bytes;
    return bytes;
  }

  void complain(const Tensor& stored, std::string text) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(p_.files.where(stored), std::move(text));
  }
  void complain_of_source(const Tensor& stored, std::string text) {
    complain(stored, std::move(text));
    const std::lock_guard lock(mutex_);
    not_the_sources_.insert(&stored);
  }
  void complain(const Tensor& stored, const Piece& p, const WrongBytes& d) {
    complain_of_source(stored, fmt::format("expert {}: {} from the source's {}, the first at byte {} of the expert",
                                           p.expert, d.text(), printable(p.range.tensor->name), d.first));
  }

  void compare_checksum(const Tensor& stored, const std::vector<Hash>& pieces, const std::string& expected) {
    if (to_hex(hash_of_pieces(pieces)) == expected) return;
    complain(stored, fmt::format("does not have the checksum in {}", manifest_name));
    is_damaged_ = true;
  }

  void check_sums(size_t i) {
    const PackedTensor& t = plan_.packed[i];
    compare_checksum(set_.stored[i], sums_.packed[i].slices, set_.checksums[i]);
    const bool hashed = level_ >= Level::bytes && !plan_.backend->rewrite;
    if (!hashed || t.rank != 0) return;
    const auto sources = sources_of(plan_, t);
    for (size_t s = 0; s < sources.size(); ++s)
      if (!not_the_sources_.contains(&set_.stored[i]) &&
          !XXH128_isEqual(hash_of_pieces(sums_.packed[i].sources.hashes[s]), p_.manifest.checksum_of(sources[s]->name)))
        complain(set_.stored[i], fmt::format("unpacked, it does not have the checksum in {} of {}", manifest_name,
                                             printable(sources[s]->name)));
  }

  int64_t check_copied(Worker& worker, const CopyJob& job) {
    int64_t done = 0;
    const Pieces pieces = pieces_in(plan_, job);
    PieceHasher hasher = source_hasher(pieces, sums_);
    for (const Piece& piece : pieces.list) {
      const Tensor& stored = p_.copied[piece.tensor];
      const TensorRange& whole = piece.range;
      WrongBytes found;
      const bool compare = source_ && level_ >= Level::bytes;
      const int64_t step = compare ? compared_block : whole.bytes;
      for (int64_t at = 0, bytes; at < whole.bytes; at += bytes) {
        bytes = std::min(step, whole.bytes - at);
        uint8_t* is = compare ? worker.packed.reserve(bytes) : nullptr;
        out_.read({&stored, whole.offset + at, bytes}, is, std::ref(hasher));
        if (!compare) continue;
        uint8_t* want = worker.source.reserve(bytes);
        source_.read({whole.tensor, whole.offset + at, bytes}, want);
        found.add(at, difference(is, want, bytes));
      }
      if (found.count)
        complain_of_source(
            stored, fmt::format("{} from the source, the first at {}", found.text(), whole.offset + found.first));
      done += whole.bytes;
    }
    return done;
  }

  /// Reads and hashes the job's slices rank after rank, and unpacks them into one canonical buffer.
  int64_t check_packed(Worker& worker, const PackJob& job) {
    const PackedTensor& t = plan_.packed[job.target];
    const bool lossy = plan_.backend->rewrite;
    const Pieces pieces = pieces_in(plan_, t, job.begin, job.end);
    const bool compare = level_ >= Level::bytes && !lossy && source_ && pieces.are_canonical();
    const bool restore = level_ >= Level::bytes && !lossy && !compare;
    uint8_t* expected = compare ? worker.source.reserve(pieces.source_bytes) : nullptr;
    const FetchPiece fetch = compare ? fetch_expected(pieces, expected) : nullptr;
    uint8_t* canonical = restore ? worker.canonical.reserve(pieces.canonical_bytes) : nullptr;
    int64_t done = 0;
    for (size_t r = 0; r < size_t(plan_.tp_size); ++r) {
      const size_t i = job.target + r;
      const PackedTensor& ranked = plan_.packed[i];
      const int64_t size = (job.end - job.begin) * ranked.slice_bytes;
      uint8_t* packed = level_ >= Level::bytes ? worker.packed.reserve(size) : nullptr;
      PieceHasher hasher = slice_hasher(plan_, i, job.begin, job.end, sums_);
      out_.read({&set_.stored[i], job.begin * ranked.slice_bytes, size}, packed, std::ref(hasher));
      if (compare)
        report_experts(job, set_.stored[i], pieces,
                       compare_experts(pieces, ranked, *worker.device, packed, expected, fetch));
      if (restore) report_pads(job, set_.stored[i], unpack_experts(pieces, ranked, *worker.device, packed, canonical));
      if (lossy && level_ >= Level::bytes) compare_with_repack(worker, job, i, packed);
      done += size;
    }
    if (restore) check_source(worker, job, t, pieces, canonical);
    if (compare) source_hasher(pieces, sums_)(expected, pieces.source_bytes);
    return done;
  }

  void read_source(const Pieces& pieces, uint8_t* to) {
    for (const Piece& p : pieces.list) source_.read(p.range, to + p.source_at);
  }

  /// Reads the source's chunks, which are canonical already. For large cached chunks and one rank it reads nothing yet;
  /// the returned function reads them.
  FetchPiece fetch_expected(const Pieces& pieces, uint8_t* to) {
    const auto fetch = [this, to](const Piece& p, int64_t first, int64_t end) {
      source_.read({p.range.tensor, p.range.offset + first, end - first}, to + p.source_at + first);
    };
    const auto can_wait = [&](const Piece& p) { return p.range.bytes >= least_later && source_.is_cached(p.range); };
    const bool later = plan_.tp_size == 1 && std::all_of(pieces.list.begin(), pieces.list.end(), can_wait);
    if (later) return fetch;
    read_source(pieces, to);
    return {};
  }

  /// For lossy backends: packs the source again and compares the bytes with OUT's.
  void compare_with_repack(Worker& worker, const PackJob& job, size_t i, const uint8_t* packed) {
    const PackedTensor& t = plan_.packed[i];
    const auto read = [&](const Pieces& pieces, uint8_t* to) { read_source(pieces, to); };
    uint8_t* want = worker.other.reserve((job.end - job.begin) * t.slice_bytes);
    const RewriteLoss loss = pack_from(pieces_in(plan_, t, job.begin, job.end), read, *worker.device, want);
    {
      const std::lock_guard lock(mutex_);
      add(loss_, loss);
    }
    for (int64_t e = job.begin; e < job.end; ++e) {
      const int64_t at = (e - job.begin) * t.slice_bytes;
      if (const WrongBytes d = difference(packed + at, want + at, t.slice_bytes); d.count)
        complain_of_source(
            set_.stored[i],
            fmt::format("expert {}: {} from the source packed again, the first at byte {}", e, d.text(), d.first));
    }
  }

  /// Compares the loss of the source packed again with that in the manifest.
  void compare_loss(const ManifestSet& set) {
    for (const std::string& line : differences(set.loss, loss_))
      lines_.emplace_back(manifest_name, describe(set) + line);
  }

  void check_source(Worker& worker, const PackJob& job, const PackedTensor& t, const Pieces& pieces,
                    const uint8_t* canonical) {
    uint8_t* restored = worker.other.reserve(pieces.source_bytes);
    PieceHasher hasher = source_hasher(pieces, sums_);
    for (const Piece& p : pieces.list) {
      const bool float_zero = p_.manifest.float_zeros.count(p.range.tensor->name) > 0;
      if (const int64_t at = restore_piece(t, p, float_zero, canonical, restored); at >= 0)
        complain(set_.stored[job.target], fmt::format("expert {}: {}", p.expert, describe_no_scale(p, at)));
      if (source_) compare_with_source(worker, set_.stored[job.target], p, restored + p.source_at);
      hasher(restored + p.source_at, p.range.bytes);
    }
  }

  void report_experts(const PackJob& job, const Tensor& stored, const Pieces& pieces,
                      const std::vector<ExpertReport>& reports) {
    for (size_t i = 0; i < reports.size(); ++i) report_pads(stored, job.begin + int64_t(i), reports[i].pads);
    for (const Piece& p : pieces.list) {
      const PieceReport& r = reports[size_t(p.expert - job.begin)].piece[p.view];
      if (r.wrong) complain(stored, p, {r.wrong, r.first});
    }
  }

  void report_pads(const PackJob& job, const Tensor& stored, const std::vector<PadReport>& reports) {
    for (size_t i = 0; i < reports.size(); ++i) report_pads(stored, job.begin + int64_t(i), reports[i]);
  }

  void report_pads(const Tensor& stored, int64_t expert, const PadReport& r) {
    if (r.wrong)
      complain(stored, fmt::format("expert {}: {} wrong, the first in row {}, byte {}: {:#04x}, {:#04x} expected",
                                   expert, r.wrong == 1 ? "1 pad byte is" : fmt::format("{} pad bytes are", r.wrong),
                                   r.n, r.b, r.is, r.expected));
    if (r.copies.wrong) complain(stored, fmt::format("expert {}: {}", expert, describe(r.copies)));
  }

  void compare_with_source(Worker& worker, const Tensor& stored, const Piece& p, const uint8_t* restored) {
    uint8_t* want = worker.source.reserve(p.range.bytes);
    source_.read(p.range, want);
    const WrongBytes d = difference(restored, want, p.range.bytes);
    if (d.count) complain(stored, p, d);
  }

  const PackedCheckpoint& p_;
  const PackedSet& set_;
  const Plan& plan_;
  const Original& source_;
  const VerifyOptions& options_;
  const Level level_;
  const DeviceChoice& devices_;
  const std::vector<int> part_of_;  // of each of the plan's files
  ShardReader out_;
  Checksums sums_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> lines_;
  std::set<const Tensor*> not_the_sources_;  // stored tensors
  RewriteLoss loss_;                         // of a lossy backend, if the source is packed again
  bool is_damaged_ = false;                  // some tensors do not match their checksums
};

}  // namespace

SetReport check_set(const PackedCheckpoint& packed, const PackedSet& set, const Original& source,
                    const VerifyOptions& options, Level level, const DeviceChoice& devices) {
  return SetCheck(packed, set, source, options, level, devices).run();
}

SetReport check_checksums(const PackedCheckpoint& packed, int threads, PageCache page_cache) {
  VerifyOptions options;
  options.threads = threads;
  options.page_cache = page_cache;
  const Original none({}, options.links);
  const DeviceChoice cpu;
  SetReport all;
  for (const PackedSet& set : packed.sets)
    for (auto& problem : check_set(packed, set, none, options, Level::files, cpu).problems)
      all.problems.push_back(std::move(problem));
  return all;
}

}  // namespace mxfp4
