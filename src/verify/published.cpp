#include "src/verify/published.h"

#include <algorithm>
#include <set>

#include "src/base/log.h"
#include "src/base/progress.h"
#include "src/checkpoint/published.h"
#include "src/device/pipeline.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/restored_file.h"
#include "src/verify/verify.h"

namespace mxfp4 {

namespace {

/// Compares the hashes of original files while it restores them.
class FileComparison {
 public:
  FileComparison(const PackedCheckpoint& packed, const PublishedList& list, Problems& problems)
      : source_(packed.manifest.source),
        record_(packed.manifest.options.published),
        list_(list),
        shards_(source_.shards.size()),
        problems_(problems) {
    for (size_t i = 0; i < shards_.size(); ++i) shards_[i] = find(list, source_.shards[i].name);
  }

  /// Compares the files that are not shards.
  void compare_small_files() {
    for (const std::string& name : original_files(source_)) {
      const PublishedFile* published = find(list_, name);
      if (find_shard(source_, name) || !published) continue;
      const std::string text = original_text(source_, name);
      compare_text(*published, text);
      if (const PublishedFile* recorded = find(record_, name)) compare_text(*recorded, text);
      bytes_ += int64_t(text.size());
    }
  }

  void compare_shards(const PackedCheckpoint& packed, const PackedSet& set, int threads, const DeviceChoice& devices) {
    const auto source = read_from(packed, set);
    const RestoredFiles restored(packed, set, *source);
    const bool is_first = &set == &packed.unpackable_set();
    std::vector<size_t> wanted;
    int64_t bytes = 0;
    for (size_t i = 0; i < shards_.size(); ++i)
      if (shards_[i] && (is_first || restored.has_experts(i))) {
        wanted.push_back(i);
        bytes += source_.shards[i].state.bytes;
      }
    std::vector<std::vector<Hashed>> found(wanted.size());
    Progress progress("restoring", bytes);
    run_jobs(
        int64_t(wanted.size()), threads,
        [&](Worker& worker, int64_t i) { found[size_t(i)] = hash(restored, wanted[size_t(i)], worker, progress); },
        devices);
    source->check_unchanged();
    for (const auto& hashes : found)
      for (const Hashed& h : hashes) compare(*h.published, h.bytes, h.is);
    if (is_first) bytes_ += bytes;
  }

  int64_t bytes() const { return bytes_; }

 private:
  struct Hashed {
    const PublishedFile* published;
    int64_t bytes;
    std::string is;
  };

  /// Hashes a restored shard for the list, and for the manifest's record if it has the file.
  std::vector<Hashed> hash(const RestoredFiles& restored, size_t shard, Worker& worker, Progress& progress) const {
    const Shard& s = source_.shards[shard];
    std::vector<const PublishedFile*> wanted = {shards_[shard]};
    if (const PublishedFile* recorded = find(record_, s.name); recorded && recorded->hash != wanted[0]->hash)
      wanted.push_back(recorded);
    std::vector<Digest> digests;
    for (const PublishedFile* p : wanted) digests.push_back(digest_like(*p, s.state.bytes));
    restored.restore(shard, worker, [&](const uint8_t* data, int64_t bytes) {
      for (Digest& d : digests) d.take(data, bytes);
      progress.add(bytes);
    });
    std::vector<Hashed> found;
    for (size_t i = 0; i < wanted.size(); ++i) found.push_back({wanted[i], s.state.bytes, digests[i].hex()});
    return found;
  }

  void compare_text(const PublishedFile& published, const std::string& text) {
    compare(published, int64_t(text.size()), hash_like(published, text));
  }

  void compare(const PublishedFile& published, int64_t bytes, const std::string& is) {
    if (published.bytes >= 0 && published.bytes != bytes)
      problems_.error(published.name, "restored, it has {} bytes, {} as published ({})", bytes, published.bytes,
                      published.by);
    else if (is != published.hash)
      problems_.error(published.name, "restored, its {} is {}, {} as published ({})", kind_of_hash(published), is,
                      published.hash, published.by);
  }

  const Checkpoint& source_;
  const PublishedList& record_;
  const PublishedList& list_;
  std::vector<const PublishedFile*> shards_;  // null: not in the list
  Problems& problems_;
  int64_t bytes_ = 0;
};

std::string names(const std::vector<std::string>& list) { return printable(fmt::format("{}", fmt::join(list, ", "))); }

}  // namespace

Json to_json(const PublishedReport& r) {
  return {
      {"list", r.list}, {"files", r.files}, {"bytes", r.bytes}, {"not_listed", r.not_listed}, {"not_kept", r.not_kept}};
}

std::vector<std::string> lines_of(const PublishedReport& r) {
  std::vector<std::string> lines = {
      fmt::format("as published in {}: {} ({})", printable(r.list), counted(r.files, "file"), human_bytes(r.bytes))};
  if (!r.not_listed.empty()) lines.push_back("without a published hash: " + names(r.not_listed));
  if (!r.not_kept.empty()) lines.push_back("published, but not kept by convert: " + names(r.not_kept));
  return lines;
}

void check_restorable(const PackedCheckpoint& packed) {
  if (std::all_of(packed.sets.begin(), packed.sets.end(), [](const PackedSet& set) { return set.is_lossy(); }))
    fail(ErrorKind::input,
         "{}: {} does not hold the original files: the backend is lossy; compare with --source instead", packed.dir,
         describe(packed.manifest.sets.front()));
}

int64_t compare_restored(const PackedCheckpoint& packed, const PublishedList& list, int threads,
                         const DeviceChoice& devices, Problems& problems) {
  FileComparison comparison(packed, list, problems);
  for (const PackedSet& set : packed.sets)
    if (!set.is_lossy()) comparison.compare_shards(packed, set, threads, devices);
  return comparison.bytes();
}

PublishedReport compare_with_list(const VerifyOptions& options, const PackedCheckpoint& packed,
                                  const PublishedList& list, const DeviceChoice& devices, Problems& problems) {
  PublishedReport report;
  report.list = options.published;
  FileComparison comparison(packed, list, problems);
  Problems unlisted;  // of the list, not of OUT
  std::set<std::string> kept;
  for (const std::string& name : original_files(packed.manifest.source)) {
    kept.insert(name);
    if (find(list, name))
      ++report.files;
    else if (find_shard(packed.manifest.source, name))
      report_not_listed(name, list, unlisted);
    else
      report.not_listed.push_back(name);
  }
  unlisted.throw_if_any();
  for (const PublishedFile& f : list)
    if (!kept.count(f.name)) report.not_kept.push_back(f.name);
  comparison.compare_small_files();
  report.bytes = comparison.bytes() + compare_restored(packed, list, options.threads, devices, problems);
  return report;
}

}  // namespace mxfp4
