#include "src/verify.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "src/log.h"
#include "src/packed_checkpoint.h"

namespace mxfp4 {

namespace {

constexpr int64_t whole_file_limit = int64_t(1) << 30;

/// Sizes of all listed files, and the checksums of headers and of small files.
void check_files(const PackedCheckpoint& p, Problems& problems) {
  for (const ListedFile& f : p.manifest.files) {
    const std::string path = p.dir + "/" + f.name;
    if (!std::filesystem::is_regular_file(path)) {
      if (!f.holds_tensors) problems.error(f.name, "missing");
      continue;
    }
    const Fd fd = open_read(path, f.name);
    const int64_t bytes = fd.stat().st_size;
    if (bytes != f.bytes) {
      problems.error(f.name, "{} bytes, {} expected", bytes, f.bytes);
      continue;
    }
    std::string text(size_t(bytes), '\0');
    if (f.holds_tensors) {
      uint64_t length = 0;
      fd.read(&length, 8, 0);
      text.resize(size_t(std::min<uint64_t>(8 + length, uint64_t(bytes))));
    } else if (bytes > whole_file_limit) {
      problems.error(f.name, "{} bytes, at most {} expected", bytes, whole_file_limit);
      continue;
    }
    fd.read(text.data(), int64_t(text.size()), 0);
    if (to_hex(hash_bytes(text.data(), int64_t(text.size()))) != f.checksum)
      problems.error(f.name, "{} does not have the checksum in {}", f.holds_tensors ? "the header" : "it",
                     manifest_name);
  }
}

/// Bytes that differ: how many, and the first.
struct Difference {
  int64_t count = 0, first = -1;
};
Difference difference(const uint8_t* a, const uint8_t* b, int64_t bytes) {
  Difference d;
  if (std::equal(a, a + bytes, b)) return d;
  for (int64_t i = 0; i < bytes; ++i)
    if (a[i] != b[i] && d.count++ == 0) d.first = i;
  return d;
}

class Verification {
 public:
  Verification(const PackedCheckpoint& p, const VerifyOptions& options, Problems& problems)
      : p_(p), options_(options), problems_(problems), out_(p.files), sums_(p.plan) {
    if (!options.source.empty()) open_source();
  }

  void run() {
    Progress progress("verifying", p_.plan.file_bytes);
    run_jobs(int64_t(p_.plan.jobs.size()), options_.threads, [&](Worker& worker, int64_t i) {
      const Job& job = p_.plan.jobs[size_t(i)];
      progress.add(job.target < 0 ? check_copied(worker, job) : check_packed(worker, job));
    });
    for (size_t i = 0; i < p_.plan.copied.size(); ++i) {
      const Tensor& t = *p_.plan.copied[i].source;
      compare_checksum(p_.files.where(p_.stored(p_.plan.copied[i])), sums_.copied[i], p_.manifest.checksums.at(t.name));
    }
    for (size_t i = 0; i < p_.plan.packed.size(); ++i) check_sums(i);
    std::sort(lines_.begin(), lines_.end());
    for (const auto& [key, text] : lines_) problems_.error(key, "{}", text);
  }

 private:
  void open_source() {
    Problems found;
    source_ = std::make_unique<Checkpoint>(open_checkpoint(options_.source, found));
    found.throw_if_any();
    for (const Tensor& t : p_.manifest.source.tensors) {
      const Tensor* s = source_->find(t.name);
      if (!s)
        problems_.error(where(options_.source, t.name), "missing in the source");
      else if (s->dtype != t.dtype || s->shape != t.shape)
        problems_.error(source_->where(*s), "{}, the output was made from {}", describe(s->dtype, s->shape),
                        describe(t.dtype, t.shape));
    }
    problems_.throw_if_any();
    reader_ = std::make_unique<ShardReader>(*source_);
  }

  void complain(const std::string& at, std::string text) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(at, std::move(text));
  }

  void compare_checksum(const std::string& at, const std::vector<Hash>& pieces, const std::string& expected) {
    if (to_hex(hash_of_pieces(pieces)) != expected)
      complain(at, fmt::format("does not have the checksum in {}", manifest_name));
  }

  void check_sums(size_t i) {
    const PackedTensor& t = p_.plan.packed[i];
    const std::string at = p_.files.where(p_.stored(t));
    compare_checksum(at, sums_.packed[i].slices, p_.manifest.packed.at(t.name));
    if (options_.level < Level::bytes || source_) return;
    const auto sources = sources_of(p_.plan, t);
    for (size_t s = 0; s < sources.size(); ++s)
      if (to_hex(hash_of_pieces(sums_.packed[i].sources[s])) != p_.manifest.checksums.at(sources[s]->name))
        complain(at,
                 fmt::format("unpacked, it does not have the source's checksum of {}", printable(sources[s]->name)));
  }

  int64_t check_copied(Worker& worker, const Job& job) {
    int64_t done = 0;
    for (int64_t i = job.begin; i < job.end; ++i) {
      const CopyPiece& piece = p_.plan.copy_pieces[size_t(i)];
      const CopiedTensor& t = p_.plan.copied[size_t(piece.copied)];
      uint8_t* data = worker.packed.reserve(piece.bytes);
      out_.read(p_.stored(t), piece.begin, piece.bytes, data);
      sums_.copied[size_t(piece.copied)][size_t(piece.begin / copy_piece_bytes)] = hash_bytes(data, piece.bytes);
      if (source_ && options_.level >= Level::bytes) {
        uint8_t* want = worker.source.reserve(piece.bytes);
        reader_->read(*source_->find(t.source->name), piece.begin, piece.bytes, want);
        if (const Difference d = difference(data, want, piece.bytes); d.count)
          complain(p_.files.where(p_.stored(t)),
                   fmt::format("{} bytes differ from the source, the first at {}", d.count, piece.begin + d.first));
      }
      done += piece.bytes;
    }
    return done;
  }

  int64_t check_packed(Worker& worker, const Job& job) {
    const PackedTensor& t = p_.plan.packed[size_t(job.target)];
    const int64_t bytes = (job.end - job.begin) * t.slice_bytes;
    uint8_t* packed = worker.packed.reserve(bytes);
    out_.read(p_.stored(t), job.begin * t.slice_bytes, bytes, packed);
    for (int64_t e = job.begin; e < job.end; ++e)
      sums_.packed[size_t(job.target)].slices[size_t(e)] =
          hash_bytes(packed + (e - job.begin) * t.slice_bytes, t.slice_bytes);
    if (options_.level >= Level::bytes) check_bytes(worker, job, t, packed);
    return bytes;
  }

  void check_bytes(Worker& worker, const Job& job, const PackedTensor& t, const uint8_t* packed) {
    const Pieces pieces = pieces_in(p_.plan, t, job.begin, job.end);
    uint8_t* canonical = worker.canonical.reserve(pieces.canonical_bytes);
    report_pads(job, t, unpack_experts(p_.plan, t, job.begin, job.end, pieces, *worker.device, packed, canonical));
    uint8_t* restored = worker.other.reserve(pieces.source_bytes);
    for (const PieceAt& p : pieces.list) {
      restore_piece(t, p, p_.manifest.float_zeros.count(p.slice.tensor->name) > 0, canonical, restored);
      const SourceIndex at = source_index(p_.plan, t, p.expert, p.piece);
      if (source_)
        compare_with_source(worker, t, p, restored + p.source_at);
      else
        sums_.packed[size_t(job.target)].sources[at.tensor][at.piece] =
            hash_bytes(restored + p.source_at, p.slice.piece_bytes);
    }
  }

  void report_pads(const Job& job, const PackedTensor& t, const std::vector<PadReport>& reports) {
    for (size_t i = 0; i < reports.size(); ++i)
      if (const PadReport& r = reports[i]; r.wrong)
        complain(
            p_.files.where(p_.stored(t)),
            fmt::format("expert {}: {} pad bytes are wrong, the first in row {}, byte {}: {:#04x}, {:#04x} expected",
                        job.begin + int64_t(i), r.wrong, r.n, r.b, r.is, r.expected));
  }

  void compare_with_source(Worker& worker, const PackedTensor& t, const PieceAt& p, const uint8_t* restored) {
    const Tensor& source = *source_->find(p.slice.tensor->name);
    uint8_t* want = worker.source.reserve(p.slice.piece_bytes);
    reader_->read(source, p.slice.piece, p.slice.piece_bytes, want);
    const Difference d = difference(restored, want, p.slice.piece_bytes);
    if (d.count)
      complain(p_.files.where(p_.stored(t)),
               fmt::format("expert {}: {} bytes differ from the source's {}, the first at byte {} of the expert",
                           p.expert, d.count, printable(source.name), d.first));
  }

  const PackedCheckpoint& p_;
  const VerifyOptions& options_;
  Problems& problems_;
  ShardReader out_;
  Checksums sums_;
  std::unique_ptr<Checkpoint> source_;
  std::unique_ptr<ShardReader> reader_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> lines_;
};

void print_verdict(const VerifyOptions& options, const PackedCheckpoint& p, const Problems& problems) {
  const char* level = options.level == Level::files ? "files" : "bytes";
  if (options.json) {
    const Json j = {{"ok", !problems.any()},
                    {"out", options.out},
                    {"level", level},
                    {"engine", p.manifest.engine},
                    {"backend", p.manifest.backend},
                    {"problems", problems.errors()}};
    fmt::print("{}\n", j.dump());
    return;
  }
  for (const std::string& line : problems.errors()) fmt::print("{}\n", line);
  if (problems.any())
    fmt::print("{}: wrong: {} problem{} at level {}\n", options.out, problems.errors().size(),
               problems.errors().size() == 1 ? "" : "s", level);
  else if (verbosity() != Verbosity::quiet)
    fmt::print("{}: right at level {} ({} packed and {} copied tensors)\n", options.out, level, p.plan.packed.size(),
               p.plan.copied.size());
}

}  // namespace

bool verify(const VerifyOptions& options) {
  Problems problems;
  const auto packed = open_packed(options.out, problems);
  check_files(*packed, problems);
  if (!problems.any()) Verification(*packed, options, problems).run();
  print_verdict(options, *packed, problems);
  return !problems.any();
}

}  // namespace mxfp4
