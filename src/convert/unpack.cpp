#include "src/convert/unpack.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>

#include "src/base/elapsed.h"
#include "src/base/log.h"
#include "src/base/progress.h"
#include "src/convert/unpack_part.h"
#include "src/device/pipeline.h"
#include "src/io/open_files.h"
#include "src/packed/companions.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/source.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

class Unpacking {
 public:
  Unpacking(const PackedCheckpoint& p, const PackedSet& set, const UnpackOptions& options,
            const std::vector<bool>& wanted, const OutputDir& dest)
      : plan_(set.plan),
        manifest_(p.manifest),
        options_(options),
        wanted_(wanted),
        devices_(choose_device(options.device, PackingWork{options.threads, set.plan.packed_bytes, true})),
        from_(read_from(p, set)),
        sums_(set.plan),
        source_(p.manifest.source),
        file_bytes_(source_.shards.size()),
        files_(
            source_.shards.size(),
            [this, &dest](size_t s) { return dest.create(source_.shards[s].name, file_bytes_[s]); },
            [](DirectFile& f) { f.finish(); }) {
    for (size_t s = 0; s < source_.shards.size(); ++s)
      if (wanted_[s]) add_shard(s);
  }

  void run() {
    int64_t bytes = 0;
    for (const int64_t b : file_bytes_) bytes += b;
    Progress progress("unpacking", bytes);
    progress.add(header_bytes_);
    run_jobs(
        int64_t(plan_.jobs.size()), options_.threads,
        [&](Worker& worker, int64_t i) {
          progress.add(std::visit([&](const auto& job) { return carry_out(worker, job); }, plan_.jobs[size_t(i)]));
        },
        devices_);
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
  bool is_wanted(const Tensor& t) const { return wanted_[size_t(restored(t).file)]; }

  /// Returns the number of bytes written.

  int64_t carry_out(Worker& worker, const CopyJob& job) {
    int64_t done = 0;
    for (const CopyPiece& piece : plan_.pieces_of(job)) {
      const CopiedTensor& t = plan_.copied[size_t(piece.copied)];
      if (!is_wanted(*t.source)) continue;
      const Tensor& to = restored(*t.source);
      const int64_t offset = to.offset + piece.begin;
      uint8_t* data = worker.packed.reserve(piece.bytes, offset);
      PieceHasher hasher = copy_hasher({&piece, 1}, sums_);
      from_->read_copied(plan_, {&piece, 1}, data, std::ref(hasher));
      files_.get(size_t(to.file))->write(data, piece.bytes, offset);
      done += piece.bytes;
    }
    return done;
  }

  int64_t carry_out(Worker& worker, const PackJob& job) {
    const Pieces pieces = pieces_in(plan_, plan_.packed[job.target], job.begin, job.end);
    const auto goes_into_it = [&](const PieceAt& p) { return is_wanted(*p.slice.tensor); };
    if (std::none_of(pieces.list.begin(), pieces.list.end(), goes_into_it)) return 0;
    uint8_t* source = worker.source.reserve(pieces.source_bytes);
    PieceHasher hasher = source_hasher(plan_, job.target, pieces, sums_);
    from_->read_pieces(worker, pieces, source, std::ref(hasher));
    int64_t done = 0;
    for (const PieceAt& p : pieces.list) {
      if (!goes_into_it(p)) continue;
      const Tensor& to = restored(*p.slice.tensor);
      files_.get(size_t(to.file))->write(source + p.source_at, p.slice.piece_bytes, to.offset + p.slice.piece);
      done += p.slice.piece_bytes;
    }
    return done;
  }

  void check_sums() const {
    Problems problems;
    const auto compare = [&](const Tensor& t, const std::vector<Hash>& pieces) {
      if (is_wanted(t) && !XXH128_isEqual(hash_of_pieces(pieces), manifest_.checksum_of(t.name)))
        problems.error(source_.where(t), "unpacked, it does not have the source's checksum; run 'mxfp4-pack verify'");
    };
    for (size_t i = 0; i < plan_.copied.size(); ++i) compare(*plan_.copied[i].source, sums_.copied[i]);
    for (size_t i = 0; i < plan_.packed.size(); i += plan_.tp.ranks.size()) {
      const auto sources = sources_of(plan_, plan_.packed[i]);
      for (size_t s = 0; s < sources.size(); ++s) compare(*sources[s], sums_.packed[i].sources[s]);
    }
    problems.throw_if_any();
  }

  const Plan& plan_;
  const Manifest& manifest_;
  const UnpackOptions& options_;
  const std::vector<bool>& wanted_;  // for each shard
  const DeviceChoice devices_;
  std::unique_ptr<Source> from_;
  Checksums sums_;
  const Checkpoint& source_;
  std::vector<int64_t> file_bytes_;
  int64_t header_bytes_ = 0;
  OpenFiles files_;
};

/// Whether a small file of `dir` has the text that unpack writes, or is missing.
bool is_unedited(const Checkpoint& source, const Folder& dir, const std::string& name) {
  return !dir.has(name) || has_text(dir, name, companion_text(source, name));
}

}  // namespace

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

void write_shards(const PackedCheckpoint& packed, const PackedSet& set, const UnpackOptions& options,
                  const std::vector<bool>& wanted, const OutputDir& dest) {
  Unpacking(packed, set, options, wanted, dest).run();
}

void write_small_files(const PackedCheckpoint& p, const OutputDir& dest) {
  for (const std::string& name : p.manifest.source.companions)
    dest.write_text(name, companion_text(p.manifest.source, name));
  if (p.manifest.source.index.bytes > 0) dest.write_text(index_name, p.manifest.source.index.read());
  dest.write_text(config_name, p.manifest.source.config_text);
  check_names(dest, p.manifest.source.companions);
}

std::vector<std::string> unpacked_files(const Checkpoint& source) {
  std::vector<std::string> names = source.companions;
  names.insert(names.end(), {config_name, index_name});
  for (const Shard& s : source.shards) names.push_back(s.name);
  return names;
}

std::vector<std::string> same_files(const Checkpoint& source, const Folder& dir) {
  const auto is_same = [&](const std::string& name) { return is_unedited(source, dir, name); };
  const bool is_it = has_text(dir, config_name, source.config_text) &&
                     std::all_of(source.companions.begin(), source.companions.end(), is_same);
  return is_it ? unpacked_files(source) : std::vector<std::string>();
}

Json unpack(const UnpackOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto packed = open_to_unpack(options.out);
  const PackedSet& set = packed->unpackable_set();
  if (packed->sets.size() > 1)
    note(fmt::format("unpacking {}", describe(packed->manifest.sets[size_t(&set - packed->sets.data())])));
  if (options.part) return unpack_part(options, *packed, set);
  const Checkpoint& source = packed->manifest.source;
  OutputDir dest(place_of(options.dest, options.out), options.dest,
                 [&](const Folder& dir) { return same_files(source, dir); });
  int64_t bytes = 0;
  for (const Shard& s : source.shards) bytes += s.state.bytes;
  dest.open({.existing = options.force ? Existing::set_aside : Existing::refuse,
             .made = unpacked_files(source),
             .bytes = bytes,
             .source_folder = packed->held.source()});
  write_shards(*packed, set, options, std::vector<bool>(source.shards.size(), true), dest);
  write_small_files(*packed, dest);
  dest.commit(config_name);
  const double seconds = seconds_since(begin);
  if (!options.json)
    note(fmt::format("{}: {}, {}, each with its source's checksum, in {} ({})", options.dest,
                     counted(source.tensors.size(), "tensor"), human_bytes(bytes), human_seconds(seconds),
                     human_rate(bytes, seconds)));
  Json result = {{"out", options.out}, {"dest", options.dest}, {"tensors", source.tensors.size()}};
  if (!dest.kept().empty()) result["kept"] = dest.kept();
  return result;
}

}  // namespace mxfp4
