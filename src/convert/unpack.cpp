#include "src/convert/unpack.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>

#include "src/base/elapsed.h"
#include "src/base/log.h"
#include "src/base/progress.h"
#include "src/device/pipeline.h"
#include "src/io/open_files.h"
#include "src/packed/checksums.h"
#include "src/packed/companions.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/source.h"
#include "src/plan/pieces.h"

namespace mxfp4 {

namespace {

class Unpacking {
 public:
  Unpacking(const PackedCheckpoint& p, const PackedSet& set, const UnpackOptions& options, const OutputDir& dest)
      : plan_(set.plan),
        manifest_(p.manifest),
        options_(options),
        devices_(choose_device(options.device, PackingWork{options.threads, set.plan.packed_bytes, true})),
        from_(read_from(p, set)),
        sums_(set.plan),
        source_(p.manifest.source),
        file_bytes_(source_.shards.size()),
        files_(
            source_.shards.size(),
            [this, &dest](size_t s) { return dest.create(source_.shards[s].name, file_bytes_[s]); },
            [](DirectFile& f) { f.finish(); }) {
    for (size_t s = 0; s < source_.shards.size(); ++s) add_shard(s);
  }

  void run() {
    int64_t bytes = 0;
    for (const int64_t b : file_bytes_) bytes += b;
    Progress progress("unpacking", bytes);
    progress.add(header_bytes_);
    run_jobs(
        int64_t(plan_.jobs.size()), options_.threads,
        [&](Worker& worker, int64_t i) { progress.add(carry_out(worker, plan_.jobs[size_t(i)])); }, devices_);
    from_->check_unchanged();
    check_sums();
    files_.close_all([](size_t, DirectFile& f) { f.finish(); });
  }

 private:
  void add_shard(size_t shard) {
    const Shard& s = source_.shards[shard];
    const std::string header = with_length(s.header.read());
    file_bytes_[shard] = s.state.bytes;
    header_bytes_ += int64_t(header.size());
    files_.get(shard)->write(header.data(), int64_t(header.size()), 0);
  }

  const Tensor& restored(const Tensor& t) const { return *source_.find(t.name); }

  /// Returns the number of bytes written.
  int64_t carry_out(Worker& worker, const Job& job) {
    const auto* copy = std::get_if<CopyJob>(&job);
    if (!copy) {
      const Pieces pieces = pieces_in(plan_, job);
      PieceHasher hasher = source_hasher(pieces, sums_);
      return restore(worker, pieces, hasher);
    }
    int64_t done = 0;
    for (size_t i = copy->begin; i < copy->end; ++i) {
      const Pieces whole = pieces_in(plan_, CopyJob{i, i + 1});
      PieceHasher hasher = source_hasher(whole, sums_);
      for (const Pieces& part : copied_parts(whole, offset_of(whole.list.front())))
        done += restore(worker, part, hasher);
    }
    return done;
  }

  /// The place of a copied piece in its file.
  int64_t offset_of(const Piece& piece) const { return restored(*piece.range.tensor).offset + piece.range.offset; }

  /// A copied piece is read into memory with the position within a page that direct writes need.
  int64_t restore(Worker& worker, const Pieces& pieces, PieceHasher& hasher) {
    const int64_t offset = pieces.tensor ? 0 : offset_of(pieces.list.front());
    uint8_t* source = worker.source.reserve(pieces.source_bytes, offset);
    from_->read(worker, pieces, source, std::ref(hasher));
    int64_t done = 0;
    for (const Piece& p : pieces.list) {
      const Tensor& to = restored(*p.range.tensor);
      files_.get(size_t(to.file))->write(source + p.source_at, p.range.bytes, to.offset + p.range.offset);
      done += p.range.bytes;
    }
    return done;
  }

  void check_sums() const {
    Problems problems;
    each_source(plan_, sums_, [&](const SourceSum& s) {
      if (!XXH128_isEqual(hash_of_pieces(s.hashes), manifest_.checksum_of(s.tensor.name)))
        problems.error(source_.where(s.tensor),
                       "unpacked, it does not have the source's checksum; run 'mxfp4-pack verify'");
    });
    problems.throw_if_any();
  }

  const Plan& plan_;
  const Manifest& manifest_;
  const UnpackOptions& options_;
  const DeviceChoice devices_;
  std::unique_ptr<Source> from_;
  Checksums sums_;
  const Checkpoint& source_;
  std::vector<int64_t> file_bytes_;
  int64_t header_bytes_ = 0;
  OpenFiles files_;
};

/// Opens an output. Throws unless it has an unpackable set and undamaged small files.
std::unique_ptr<PackedCheckpoint> open_to_unpack(const std::string& out) {
  Problems problems;
  auto packed = open_packed(out, problems);
  problems.throw_if_any();
  check_kinds(*packed);
  packed->unpackable_set();
  check_companions(packed->manifest.source, problems);
  problems.throw_if_any();
  return packed;
}

/// Writes config, index and companions as in the source.
void write_small_files(const PackedCheckpoint& p, const OutputDir& dest) {
  for (const std::string& name : p.manifest.source.companions)
    dest.write_text(name, companion_text(p.manifest.source, name));
  if (p.manifest.source.index.bytes > 0) dest.write_text(index_name, p.manifest.source.index.read());
  dest.write_text(config_name, p.manifest.source.config_text);
  check_names(dest, p.manifest.source.companions);
}

/// The names of all files that unpack writes.
std::vector<std::string> unpacked_files(const Checkpoint& source) {
  std::vector<std::string> names = source.companions;
  names.insert(names.end(), {config_name, index_name});
  for (const Shard& s : source.shards) names.push_back(s.name);
  return names;
}

}  // namespace

Json unpack(const UnpackOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto packed = open_to_unpack(options.out);
  const PackedSet& set = packed->unpackable_set();
  if (packed->sets.size() > 1)
    note(fmt::format("unpacking {}", describe(packed->manifest.sets[size_t(&set - packed->sets.data())])));
  const Checkpoint& source = packed->manifest.source;
  Place place = place_of(options.dest, options.out);
  check_not_in_output(options.dest, place.above);
  OutputDir dest(std::move(place), options.dest);
  int64_t bytes = 0;
  for (const Shard& s : source.shards) bytes += s.state.bytes;
  dest.open({.made = unpacked_files(source), .bytes = bytes, .source_folder = packed->held.source()});
  Unpacking(*packed, set, options, dest).run();
  write_small_files(*packed, dest);
  dest.commit(config_name);
  const double seconds = seconds_since(begin);
  if (!options.json)
    note(fmt::format("{}: {}, {}, each with its source's checksum, in {} ({})", options.dest,
                     counted(source.tensors.size(), "tensor"), human_bytes(bytes), human_seconds(seconds),
                     human_rate(bytes, seconds)));
  return {{"out", options.out}, {"dest", options.dest}, {"tensors", source.tensors.size()}};
}

}  // namespace mxfp4
