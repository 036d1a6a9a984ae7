#include "src/convert/unchanged.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <set>

#include "src/base/log.h"
#include "src/checkpoint/companion.h"
#include "src/convert/convert.h"
#include "src/device/pipeline.h"
#include "src/packed/checksums.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/rebuilt.h"
#include "src/packed/source_headers.h"
#include "src/plan/pieces.h"
#include "src/verify/set_check.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t second = 1'000'000'000;

int64_t nanoseconds(const timespec& t) { return int64_t(t.tv_sec) * second + t.tv_nsec; }

/// $XDG_CACHE_HOME/mxfp4-pack, ~/.cache/mxfp4-pack, or empty.
std::string cache_dir() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && *cache == '/') return std::string(cache) + "/mxfp4-pack";
  return home && *home == '/' ? std::string(home) + "/.cache/mxfp4-pack" : "";
}

/// The state of the file that was opened as this shard; none if its path has another file, or for a packed source.
std::optional<struct stat> state_again(const Shard& shard) try {
  return open_again(shard).stat();
} catch (const Error&) {
  return {};
}

std::string shown(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_string()) return value.dump();
  return value.get_ref<const std::string&>().empty() ? "none" : value.get<std::string>();
}

/// "its --gate-up is X, and Y is asked for", or empty.
std::string difference_of(std::string option, const Json& was, const Json& is) {
  if (was == is) return {};
  std::replace(option.begin(), option.end(), '_', '-');
  return fmt::format("its --{} is {}, and {} is asked for", option, shown(was), shown(is));
}

/// The first difference that does not depend on the tensors' contents.
std::string difference_of_source(const Plan& plan, const Manifest& m) {
  const Checkpoint& ck = *plan.checkpoint;
  if (m.source.config_text != ck.config_text) return "the checkpoint's config.json differs";
  for (const ListedFile& f : m.files)
    if (f.kind == file_kind::source_headers && f.checksum != source_headers_checksum(ck))
      return "the checkpoint's tensors have other names, types or shapes";
  for (const OutFile& f : plan.files) {
    const auto listed = std::find_if(m.files.begin(), m.files.end(), [&](auto& l) { return l.name == f.name; });
    if (listed == m.files.end() || listed->bytes != f.bytes || listed->checksum != checksum_of(f.header))
      return fmt::format("its {} is laid out otherwise", printable(f.name));
  }
  return {};
}

}  // namespace

bool is_fixed_output(const Place& out) { return !can_replace(out) && has_manifest(out.folder()); }

std::string difference_of_files(const Checkpoint& ck, const Manifest& m) {
  if (m.source.index != ck.index) return "the checkpoint's index differs";
  const std::set<std::string> ours(m.source.companions.begin(), m.source.companions.end()),
      theirs(ck.companions.begin(), ck.companions.end());
  for (const std::string& name : theirs)
    if (!ours.contains(name)) return fmt::format("{} is new in the checkpoint", printable(name));
  for (const std::string& name : ours)
    if (!theirs.contains(name)) return fmt::format("{} is gone from the checkpoint", printable(name));
  for (const ListedFile& f : m.files)
    if (ours.contains(f.name) && companion_checksum(ck, f.name) != f.checksum)
      return fmt::format("the checkpoint's {} differs", printable(f.name));
  return {};
}

std::string difference_of(const ModelOptions& was, const ModelOptions& is) {
  const Json recorded = to_json(was);
  std::string text;
  visit_recorded(is, [&](const char* name, const auto& value) {
    if (text.empty()) text = difference_of(name, recorded.at(name), value);
  });
  return text;
}

void check_as_written(const PackedCheckpoint& out, Problems& damage) {
  if (!damage.any()) check_nothing_else(out, damage);
  if (!damage.any()) compare_with_rebuilt(out, out.manifest.source, damage);
}

Checksums read_sums(const Plan& plan, Source& source, int threads, const std::vector<bool>& wanted) {
  Checksums sums(plan);
  run_jobs(int64_t(plan.jobs.size()), threads, [&](Worker& worker, int64_t j) {
    if (!wanted[size_t(j)]) return;
    const Pieces pieces = pieces_in(plan, plan.jobs[size_t(j)]);
    PieceHasher hasher = source_hasher(pieces, sums);
    source.read(worker, pieces, worker.source.reserve(pieces.source_bytes), std::ref(hasher));
  });
  source.check_unchanged();
  return sums;
}

std::string difference_of_set(const Plan& plan, const ManifestOptions& options, const PackedCheckpoint& out,
                              Problems& damage) {
  const Manifest& m = out.manifest;
  std::string differs =
      difference_of("layout_version", m.sets.at(size_t(plan.set)).layout_version, plan.backend->layout_version);
  if (differs.empty()) differs = difference_of(m.options.model, options.model);
  if (differs.empty()) differs = difference_of_source(plan, m);
  const bool is_added = plan.checkpoint == &m.source;  // then both were looked at
  if (differs.empty() && !is_added) differs = difference_of_files(*plan.checkpoint, m);
  if (!differs.empty()) return differs;
  if (!is_added && !damage.any()) check_files(out, damage);
  check_as_written(out, damage);
  return damage.any() ? "it is not as it was written: " + damage.errors().front() : "";
}

bool has_same_contents(const Plan& plan, Source& source, const Checkpoint& files, const Manifest& m, int threads) {
  ContentsCache cache(files);
  if (const std::string known = cache.find(); !known.empty()) return known == m.fingerprint;
  const Checksums sums = read_sums(plan, source, threads, std::vector<bool>(plan.jobs.size(), true));
  const std::string fingerprint = fingerprint_of(plan, source_checksums(plan, sums));
  cache.put(fingerprint);
  return fingerprint == m.fingerprint;
}

std::string damaged_tensor(const PackedCheckpoint& out, int threads) {
  ContentsCache cache(out.files);
  if (cache.find() == out.manifest.own_checksum) return {};
  const SetReport report = check_checksums(out, threads, PageCache::no);
  if (!report.problems.empty()) return report.problems.front().first;
  cache.put(out.manifest.own_checksum);
  return {};
}

ContentsCache::ContentsCache(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  key_ = key();
  if (key_.empty()) return;
  if (const std::string dir = cache_dir(); !dir.empty()) path_ = dir + "/" + key_;
}

std::string ContentsCache::key() {
  std::string text = MXFP4_VERSION;
  for (const Shard& s : checkpoint_.shards) {
    if (!s.version.empty()) {
      text += fmt::format("\n{} {} {} {}", checkpoint_.dir, s.name, s.state.bytes, s.version);
      continue;
    }
    const auto now = state_again(s);
    if (!now) return {};
    newest_ = std::max(newest_, nanoseconds(now->st_ctim));
    text += fmt::format("\n{} {} {} {} {} {}", s.name, now->st_dev, now->st_ino, now->st_size,
                        nanoseconds(now->st_mtim), nanoseconds(now->st_ctim));
  }
  return checksum_of(text);
}

std::string ContentsCache::find() const {
  std::error_code ec;
  if (path_.empty() || !fs::is_regular_file(path_, ec)) return {};
  std::string text;
  try {
    text = read_text(path_, 4096);
  } catch (const Error&) {  // treated as missing
    return {};
  }
  const bool whole = text.size() == 66 && text.substr(33, 32) == checksum_of(text.substr(0, 32));
  return whole ? text.substr(0, 32) : "";
}

void ContentsCache::put(const std::string& checksum) {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (path_.empty() || key() != key_ || newest_ + 2 * second > nanoseconds(now)) return;
  std::error_code ec;
  fs::create_directories(fs::path(path_).parent_path(), ec);
  fs::permissions(fs::path(path_).parent_path(), fs::perms::owner_all, ec);
  if (ec) return;
  const std::string fresh = fmt::format("{}.{}", path_, nanoseconds(now));
  try {
    write_text(fresh, checksum + " " + checksum_of(checksum) + "\n");
    fs::rename(fresh, path_, ec);
  } catch (const Error&) {  // ignore: the cache is optional
    fs::remove(fresh, ec);
  }
}

}  // namespace mxfp4
