#include "src/verify/verify.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>

#include "src/base/elapsed.h"
#include "src/base/log.h"
#include "src/base/progress.h"
#include "src/device/pipeline.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/rebuilt.h"
#include "src/packed/sharded_state.h"
#include "src/plan/deal.h"
#include "src/plan/rewrite.h"
#include "src/verify/original.h"
#include "src/verify/sums.h"
#include "src/verify/verdict.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t compared_block = int64_t(1) << 20;  // of both sides: caches have them, and a disk is busy
constexpr int64_t least_later = 64 << 10;             // smaller pieces are not worth asking whether memory has them

/// Bytes that differ: how many, and the first.
struct WrongBytes {
  int64_t count = 0, first = -1;

  /// What follows, from byte `at` on.
  void add(int64_t at, const WrongBytes& next) {
    if (count == 0 && next.count > 0) first = at + next.first;
    count += next.count;
  }
};
WrongBytes difference(const uint8_t* a, const uint8_t* b, int64_t bytes) {
  WrongBytes d;
  if (std::equal(a, a + bytes, b)) return d;
  for (int64_t i = 0; i < bytes; ++i)
    if (a[i] != b[i] && d.count++ == 0) d.first = i;
  return d;
}

/// Checks one set of packed tensors, or the part of it that is asked for; the first set's pass checks the copied
/// tensors too.
class Verification {
 public:
  Verification(const PackedCheckpoint& p, const PackedSet& set, const Original& source, const VerifyOptions& options,
               Level level, const DeviceChoice& devices)
      : p_(p),
        set_(set),
        plan_(set.plan),
        source_(source),
        options_(options),
        level_(level),
        devices_(devices),
        part_of_(deal(set.plan, options.part.count).of_file),
        out_(p.files),
        sums_(set.plan) {}

  void run(Problems& problems) {
    const bool first = &set_ == &p_.sets.front();
    Progress progress("verifying", data_bytes(first));
    run_jobs(
        int64_t(plan_.jobs.size()), options_.threads,
        [&](Worker& worker, int64_t i) {
          const Job& job = plan_.jobs[size_t(i)];
          if (const auto* pack = std::get_if<PackJob>(&job)) {
            if (is_mine(plan_.packed[size_t(pack->target)].file)) progress.add(check_packed(worker, *pack));
          } else if (first) {
            const auto& copy = std::get<CopyJob>(job);
            if (is_mine(plan_.copied[size_t(plan_.pieces_of(copy).front().copied)].file.value()))
              progress.add(check_copied(worker, copy));
          }
        },
        devices_);
    for (size_t i = 0; first && i < plan_.copied.size(); ++i)
      if (is_mine(plan_.copied[i].file.value()))
        compare_checksum(p_.files.where(p_.copied[i]), sums_.copied[i],
                         to_hex(p_.manifest.checksum_of(p_.copied[i].name)));
    for (size_t i = 0; i < plan_.packed.size(); ++i)
      if (is_mine(plan_.packed[i].file)) check_sums(i);
    std::sort(lines_.begin(), lines_.end());
    for (const auto& [at, text] : lines_) problems.error(at, "{}", text);
  }

 private:
  /// A file is of one part, with all tensors in it, and so are all ranks' files of a tensor.
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
  void complain(const Tensor& stored, const PieceAt& p, const WrongBytes& d) {
    complain(stored, fmt::format("expert {}: {} bytes differ from the source's {}, the first at byte {} of the expert",
                                 p.expert, d.count, printable(p.slice.tensor->name), d.first));
  }

  void compare_checksum(const std::string& at, const std::vector<Hash>& pieces, const std::string& expected) {
    if (to_hex(hash_of_pieces(pieces)) != expected)
      lines_.emplace_back(at, fmt::format("does not have the checksum in {}", manifest_name));
  }

  void check_sums(size_t i) {
    const PackedTensor& t = plan_.packed[i];
    compare_checksum(p_.files.where(set_.stored[i]), sums_.packed[i].slices, set_.checksums[i]);
    const bool hashed = level_ >= Level::bytes && !plan_.backend->rewrite && (source_ || plan_.tp.complete());
    if (!hashed || t.rank != plan_.tp.ranks.front()) return;
    const auto sources = sources_of(plan_, t);
    for (size_t s = 0; s < sources.size(); ++s)
      if (!XXH128_isEqual(hash_of_pieces(sums_.packed[i].sources[s]), p_.manifest.checksum_of(sources[s]->name)))
        complain(set_.stored[i], fmt::format("unpacked, it does not have the checksum in {} of {}", manifest_name,
                                             printable(sources[s]->name)));
  }

  int64_t check_copied(Worker& worker, const CopyJob& job) {
    int64_t done = 0;
    for (const CopyPiece& piece : plan_.pieces_of(job)) {
      const Tensor& stored = p_.copied[size_t(piece.copied)];
      PieceHasher hasher = copy_hasher({&piece, 1}, sums_);
      WrongBytes found;
      const bool compare = source_ && level_ >= Level::bytes;
      const int64_t step = compare ? compared_block : piece.bytes;
      for (int64_t at = 0, bytes; at < piece.bytes; at += bytes) {
        bytes = std::min(step, piece.bytes - at);
        uint8_t* is = compare ? worker.packed.reserve(bytes) : nullptr;
        out_.read(stored, piece.begin + at, bytes, is, std::ref(hasher));
        if (!compare) continue;
        uint8_t* want = worker.source.reserve(bytes);
        source_.read(stored, piece.begin + at, bytes, want);
        found.add(at, difference(is, want, bytes));
      }
      if (found.count)
        complain(stored, fmt::format("{} bytes differ from the source, the first at {}", found.count,
                                     piece.begin + found.first));
      done += piece.bytes;
    }
    return done;
  }

  /// Reads and hashes the job's slices rank after rank, and unpacks them into one canonical buffer.
  int64_t check_packed(Worker& worker, const PackJob& job) {
    const PackedTensor& t = plan_.packed[job.target];
    const bool lossy = plan_.backend->rewrite;
    const Pieces pieces = pieces_in(plan_, t, job.begin, job.end);
    const bool compare = level_ >= Level::bytes && !lossy && source_ && pieces.source_bytes == pieces.canonical_bytes;
    const bool restore = level_ >= Level::bytes && !lossy && !compare;
    uint8_t* expected = compare ? worker.source.reserve(pieces.source_bytes) : nullptr;
    const FetchPiece fetch = compare ? fetch_expected(pieces, expected) : nullptr;
    uint8_t* canonical = restore ? worker.canonical.reserve(pieces.canonical_bytes) : nullptr;
    if (restore && !plan_.tp.complete()) fill_missing_ranks(worker, t, pieces, canonical);
    int64_t done = 0;
    for (size_t r = 0; r < plan_.tp.ranks.size(); ++r) {
      const size_t i = job.target + r;
      const PackedTensor& ranked = plan_.packed[i];
      const int64_t size = (job.end - job.begin) * ranked.slice_bytes;
      uint8_t* packed = level_ >= Level::bytes ? worker.packed.reserve(size) : nullptr;
      PieceHasher hasher = slice_hasher(plan_, i, job.begin, job.end, sums_);
      out_.read(set_.stored[i], job.begin * ranked.slice_bytes, size, packed, std::ref(hasher));
      if (compare)
        report_experts(job, set_.stored[i], pieces,
                       compare_experts(pieces, ranked, *worker.device, packed, expected, fetch));
      if (restore) report_pads(job, set_.stored[i], unpack_experts(pieces, ranked, *worker.device, packed, canonical));
      if (lossy && level_ >= Level::bytes) compare_with_repack(worker, job, i, packed);
      done += size;
    }
    if (restore) check_source(worker, job, t, pieces, canonical);
    if (compare) source_hasher(plan_, job.target, pieces, sums_)(expected, pieces.source_bytes);
    return done;
  }

  /// The source's pieces, which are canonical as they are: read now, or, where they are large, in memory and all on one
  /// rank, by the function that is returned.
  FetchPiece fetch_expected(const Pieces& pieces, uint8_t* to) {
    const auto read = [this, to](const PieceAt& p, int64_t first, int64_t end) {
      source_.read(*p.slice.tensor, p.slice.piece + first, end - first, to + p.source_at + first);
    };
    const auto can_wait = [&](const PieceAt& p) {
      return p.slice.piece_bytes >= least_later &&
             source_.is_cached(*p.slice.tensor, p.slice.piece, p.slice.piece_bytes);
    };
    const bool later = plan_.tp.ranks.size() == 1 && plan_.tp.complete() &&
                       std::all_of(pieces.list.begin(), pieces.list.end(), can_wait);
    if (later) return read;
    for (const PieceAt& p : pieces.list) read(p, 0, p.slice.piece_bytes);
    return {};
  }

  /// Lossy backends: OUT's bytes against those that the source gives again.
  void compare_with_repack(Worker& worker, const PackJob& job, size_t i, const uint8_t* packed) {
    const PackedTensor& t = plan_.packed[i];
    const auto read = [&](const Pieces& pieces, uint8_t* to) {
      for (const PieceAt& p : pieces.list)
        source_.read(*p.slice.tensor, p.slice.piece, p.slice.piece_bytes, to + p.source_at);
    };
    uint8_t* want = worker.other.reserve((job.end - job.begin) * t.slice_bytes);
    pack_from(pieces_in(plan_, t, job.begin, job.end), read, *worker.device, want);
    for (int64_t e = job.begin; e < job.end; ++e) {
      const int64_t at = (e - job.begin) * t.slice_bytes;
      if (const WrongBytes d = difference(packed + at, want + at, t.slice_bytes); d.count)
        complain(set_.stored[i],
                 fmt::format("expert {}: {} bytes differ from the source packed again, the first at byte {}", e,
                             d.count, d.first));
    }
  }

  /// Where ranks are missing their rows come from the source, or are left as they are where none was given.
  void fill_missing_ranks(Worker& worker, const PackedTensor& t, const Pieces& pieces, uint8_t* canonical) {
    if (!source_) return;
    uint8_t* source = worker.source.reserve(pieces.source_bytes);
    for (const PieceAt& p : pieces.list) {
      source_.read(*p.slice.tensor, p.slice.piece, p.slice.piece_bytes, source + p.source_at);
      to_canonical(t, p, true, source, canonical);
    }
  }

  void check_source(Worker& worker, const PackJob& job, const PackedTensor& t, const Pieces& pieces,
                    const uint8_t* canonical) {
    if (!source_ && !plan_.tp.complete()) return;
    uint8_t* restored = worker.other.reserve(pieces.source_bytes);
    PieceHasher hasher = source_hasher(plan_, job.target, pieces, sums_);
    for (const PieceAt& p : pieces.list) {
      restore_piece(t, p, p_.manifest.float_zeros.count(p.slice.tensor->name) > 0, canonical, restored);
      if (source_) compare_with_source(worker, set_.stored[job.target], p, restored + p.source_at);
      hasher(restored + p.source_at, p.slice.piece_bytes);
    }
  }

  void report_experts(const PackJob& job, const Tensor& stored, const Pieces& pieces,
                      const std::vector<ExpertReport>& reports) {
    for (size_t i = 0; i < reports.size(); ++i) report_pads(stored, job.begin + int64_t(i), reports[i].pads);
    for (const PieceAt& p : pieces.list) {
      const PieceReport& r = reports[size_t(p.expert - job.begin)].piece[p.piece];
      if (r.wrong) complain(stored, p, {r.wrong, r.first});
    }
  }

  void report_pads(const PackJob& job, const Tensor& stored, const std::vector<PadReport>& reports) {
    for (size_t i = 0; i < reports.size(); ++i) report_pads(stored, job.begin + int64_t(i), reports[i]);
  }

  void report_pads(const Tensor& stored, int64_t expert, const PadReport& r) {
    if (r.wrong)
      complain(stored,
               fmt::format("expert {}: {} pad bytes are wrong, the first in row {}, byte {}: {:#04x}, {:#04x} expected",
                           expert, r.wrong, r.n, r.b, r.is, r.expected));
  }

  void compare_with_source(Worker& worker, const Tensor& stored, const PieceAt& p, const uint8_t* restored) {
    uint8_t* want = worker.source.reserve(p.slice.piece_bytes);
    source_.read(*p.slice.tensor, p.slice.piece, p.slice.piece_bytes, want);
    const WrongBytes d = difference(restored, want, p.slice.piece_bytes);
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
};

/// The level that is meant for a set, or Error{usage} where it cannot be reached.
Level level_of(const VerifyOptions& options, const PackedSet& set) {
  const Backend& backend = *set.plan.backend;
  if (options.level == Level::kernels && options.source.empty())
    fail(ErrorKind::usage, "--level kernels compares with the checkpoint; say where it is with --source");
  if (backend.rewrite && options.source.empty()) {
    if (options.level == Level::highest || options.level == Level::files) return Level::files;
    fail(ErrorKind::usage, "{}: {} is lossy, so level bytes needs --source", options.out, backend.name);
  }
  if (!set.plan.tp.complete() && options.source.empty()) {
    if (options.level == Level::highest || options.level == Level::files) return Level::files;
    fail(ErrorKind::usage, "{}: {} of {} is not there with all ranks, so level bytes needs --source", options.out,
         backend.name, backend.engine);
  }
  if (options.level != Level::highest) return options.level;
  return options.source.empty() || !backend.kernel ? Level::bytes : Level::kernels;
}

/// For the highest level of any set.
DeviceChoice device_for(const VerifyOptions& options, Level level) {
  if (level < Level::bytes) return {};
  if (level == Level::kernels) return choose_device(options.device);
  return choose_device(options.device, PackingWork{.threads = options.threads, .bytes = 0, .unpacks = true});
}

/// The kernels run on the first of the devices. Those that no GPU can run are an error only where they were asked for.
KernelOptions kernel_options(const VerifyOptions& options, const DeviceChoice& devices) {
  KernelOptions kernels = options.kernels;
  kernels.threads = options.threads;
  kernels.part = options.part;
  const bool asked_for = options.level == Level::kernels && options.device.name != "auto";
  kernels.device = devices.gpus.empty() ? "cpu" : asked_for ? "cuda" : "auto";
  if (!devices.gpus.empty()) select_cuda(devices.gpus.front());
  return kernels;
}

/// --save makes a new file, and never one in OUT or in the checkpoint.
void check_save(const VerifyOptions& options) {
  if (fs::exists(fs::symlink_status(options.save)))
    fail(ErrorKind::usage, "{}: exists; --save makes a new file", options.save);
  const fs::path path = fs::weakly_canonical(fs::absolute(options.save));
  std::error_code none;  // a directory that is not there is said elsewhere
  for (const std::string& dir : {options.out, options.source})
    if (const fs::path whole = fs::canonical(dir, none); !whole.empty() && is_below(path, whole))
      fail(ErrorKind::usage, "{}: lies in {}; --save FILE has a place of its own", options.save, dir);
}

}  // namespace

void check_bytes(const std::string& out, int threads) {
  VerifyOptions options;
  options.threads = threads;
  const Original none(options.source);
  Problems problems;
  const auto packed = open_packed(out, problems);
  const bool is_state = packed->manifest.options.format == sharded_state_format;
  if (!problems.any() && is_state) verify_state(*packed, threads, problems);
  for (const PackedSet& set : packed->sets)
    if (!problems.any()) Verification(*packed, set, none, options, Level::files, {}).run(problems);
  check_sums(*packed, options.part, threads, problems);
  problems.throw_if_any();
}

bool verify(const VerifyOptions& options) {
  if (options.bench.run) require_bench();
  const bool kernels_level = options.level == Level::kernels || options.level == Level::highest;
  if (!options.save.empty() && (!kernels_level || options.source.empty()))
    fail(ErrorKind::usage,
         "--save is of level kernels, which compares with the checkpoint; say where it is with --source");
  if (!options.save.empty()) check_save(options);
  if (options.out.empty()) {
    const BenchReport bench = bench_shape(options.bench);
    print_out("{}", options.json ? one_line(Json{{"bench", to_json(bench)}}) + "\n" : to_text(bench));
    return true;
  }
  Verdict v;
  const auto begin = std::chrono::steady_clock::now();
  const Original source(options.source);  // before OUT: what opening takes for a while is not in memory beside it
  const auto packed = open_packed(options.out, v.problems);
  for (const PackedSet& set : packed->sets) v.levels.push_back(level_of(options, set));
  if (std::count(v.levels.begin(), v.levels.end(), Level::kernels)) check_layers(*packed, options.kernels);
  const bool is_state = packed->manifest.options.format == sharded_state_format;
  if (is_state && options.part.count > 1)
    fail(ErrorKind::usage, "{}: a sharded state is verified by one node, without --part", options.out);
  const bool first = options.part.index == 0;
  if (first) check_files(*packed, v.problems);
  if (first) check_nothing_else(*packed, v.problems);
  if (!v.problems.any()) {
    if (source) source.check_form(packed->manifest.source);
    if (source && first) source.compare_rest(packed->manifest.source, v.problems);
    if (first && !v.problems.any())
      compare_with_rebuilt(*packed, source.described_by(packed->manifest.source), v.problems);
    const DeviceChoice devices = device_for(options, *std::max_element(v.levels.begin(), v.levels.end()));
    if (is_state) verify_state(*packed, options.threads, v.problems);
    for (size_t i = 0; i < packed->sets.size(); ++i)
      Verification(*packed, packed->sets[i], source, options, v.levels[i], devices).run(v.problems);
    check_sums(*packed, options.part, options.threads, v.problems);
    KernelFile saved;
    KernelOptions kernels = kernel_options(options, devices);
    if (!options.save.empty()) kernels.file = &saved;
    for (size_t i = 0; i < packed->sets.size(); ++i) {
      if (v.levels[i] < Level::kernels) continue;
      v.kernels[i] = verify_kernels(*packed, i, *source.checkpoint, kernels, v.problems);
      if (v.kernels[i].checks.empty()) v.levels[i] = Level::bytes;  // the layers are other parts'
    }
    if (!saved.empty()) saved.write(options.save);
  }
  if (options.bench.run) v.bench = bench_sets(*packed, options.bench);
  v.seconds = seconds_since(begin);
  print(options, *packed, v);
  return !v.problems.any();
}

}  // namespace mxfp4
