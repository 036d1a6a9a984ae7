#include "src/verify/sums.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/io/sha256.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/deal.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_sums_bytes = int64_t(1) << 30;

/// The part of each file with tensors; the first part, if several have tensors in the file.
std::map<std::string, int> parts_by_file(const PackedCheckpoint& p, int count) {
  std::map<std::string, int> parts;
  const auto add = [&](const Tensor& stored, int part) {
    int& known = parts.emplace(p.files.shards[size_t(stored.file)].name, part).first->second;
    known = std::min(known, part);
  };
  for (const PackedSet& set : p.sets) {
    const std::vector<int> part_of = deal(set.plan, count).of_file;
    for (size_t i = 0; i < set.stored.size(); ++i) add(set.stored[i], part_of[size_t(set.plan.packed[i].file)]);
    for (size_t i = 0; i < p.copied.size(); ++i) add(p.copied[i], part_of[size_t(set.plan.copied[i].file.value())]);
  }
  return parts;
}

std::set<std::string> files_of_others(const PackedCheckpoint& p, const PartNumber& part) {
  const std::map<std::string, int> parts = parts_by_file(p, part.count);
  std::set<std::string> others;
  const auto add = [&](const std::string& name) {
    const auto found = parts.find(name);
    if ((found == parts.end() ? 0 : found->second) != part.index) others.insert(name);
  };
  add(manifest_name);
  for (const ListedFile& f : p.manifest.files) add(f.name);
  return others;
}

}  // namespace

void check_sums(const PackedCheckpoint& p, const PartNumber& part, int threads, Problems& problems) {
  if (!p.held.holds(sums_name)) return;
  const int64_t before = problems.count();
  NamedFiles files;
  const auto add = [&](const std::string& name) {
    files[name] = [path = p.held.path(name, problems), name] { return open_read(path, name); };
  };
  add(manifest_name);
  for (const ListedFile& f : p.manifest.files) add(f.name);
  const std::string sums = p.held.path(sums_name, problems);
  if (problems.count() > before) return;
  const std::string text = read_text(sums, max_sums_bytes, sums_name);
  check_sha256_sums(text, files, files_of_others(p, part), threads, problems);
}

}  // namespace mxfp4
