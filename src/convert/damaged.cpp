#include "src/convert/damaged.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <vector>

#include "src/checkpoint/shard_reader.h"
#include "src/convert/unchanged.h"
#include "src/device/pipeline.h"
#include "src/packed/checksums.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/pieces.h"

namespace mxfp4 {

namespace {

/// A tensor to be checked: how to read it, and how to compare it afterwards.
struct Check {
  const Tensor* stored;
  std::function<void(Worker& worker, const ShardReader& reader)> read;  // reads and hashes the whole tensor
  std::function<bool()> has_checksum;                                   // called after read
};

Check check_of_packed(const PackedSet& set, size_t i, Checksums& sums) {
  const PackedTensor& t = set.plan.packed[i];
  const auto read = [&set, &t, i, &sums](Worker& worker, const ShardReader& reader) {
    const int64_t experts = int64_t(sums.packed[i].slices.size());
    PieceHasher hasher = slice_hasher(set.plan, i, 0, experts, sums);
    uint8_t* to = worker.packed.reserve(t.slice_bytes);
    for (int64_t e = 0; e < experts; ++e)
      reader.read({&set.stored[i], e * t.slice_bytes, t.slice_bytes}, to, std::ref(hasher));
  };
  const auto has_checksum = [&set, i, &sums] {
    return to_hex(hash_of_pieces(sums.packed[i].slices)) == set.checksums[i];
  };
  return {&set.stored[i], read, has_checksum};
}

Check check_of_copied(const PackedCheckpoint& out, size_t i, Checksums& sums) {
  const Plan& plan = out.sets.front().plan;
  const auto read = [&out, &plan, i, &sums](Worker& worker, const ShardReader& reader) {
    for (size_t p = 0; p < plan.copy_pieces.size(); ++p) {
      const auto& [copied, range] = plan.copy_pieces[p];
      if (copied != i) continue;
      PieceHasher hasher = source_hasher(pieces_in(plan, CopyJob{p, p + 1}), sums);
      reader.read({&out.copied[i], range.offset, range.bytes}, worker.packed.reserve(range.bytes), std::ref(hasher));
    }
  };
  const auto has_checksum = [&out, &plan, i, &sums] {
    const Hash expected = out.manifest.checksum_of(plan.copied[i].source->name);
    return bool(XXH128_isEqual(hash_of_pieces(sums.copied.hashes[i]), expected));
  };
  return {&out.copied[i], read, has_checksum};
}

}  // namespace

std::string damaged_tensor(const PackedCheckpoint& out, int threads) {
  const SourceCache cache(out.files);
  if (cache.find() == out.manifest.own_checksum) return {};
  std::vector<Checksums> sums;
  for (const PackedSet& set : out.sets) sums.emplace_back(set.plan);
  std::vector<Check> checks;
  for (size_t s = 0; s < out.sets.size(); ++s)
    for (size_t i = 0; i < out.sets[s].stored.size(); ++i) checks.push_back(check_of_packed(out.sets[s], i, sums[s]));
  for (size_t i = 0; i < out.copied.size(); ++i) checks.push_back(check_of_copied(out, i, sums.front()));
  const ShardReader reader(out.files);
  std::mutex mutex;
  size_t first = checks.size();  // the first damaged tensor
  run_jobs(int64_t(checks.size()), threads, [&](Worker& worker, int64_t i) {
    const Check& check = checks[size_t(i)];
    check.read(worker, reader);
    if (check.has_checksum()) return;
    const std::lock_guard lock(mutex);
    first = std::min(first, size_t(i));
  });
  if (first < checks.size()) return out.files.where(*checks[first].stored);
  cache.put(out.manifest.own_checksum);
  return {};
}

}  // namespace mxfp4
