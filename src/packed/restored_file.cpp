#include "src/packed/restored_file.h"

#include <algorithm>

#include "src/base/signals.h"
#include "src/device/pipeline.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/pieces.h"

namespace mxfp4 {

/// A piece of a job that reads one copied piece, or the packed matrix of one expert.
struct RestoredFiles::Segment {
  TensorRange range;
  Job job;
  size_t piece = 0;  // its index among the job's pieces
};

/// The matrices that a thread unpacked last. One packed matrix gives both gate and up of an expert, which are separate
/// in a shard.
class RestoredFiles::Unpacked {
 public:
  Unpacked(const Plan& plan, Source& source, Worker& worker) : plan_(plan), source_(source), worker_(worker) {}

  const uint8_t* piece(const PackJob& job, size_t piece) {
    Entry& entry = find(job.target, job.begin);
    return entry.bytes.data() + entry.starts[piece];
  }

 private:
  struct Entry {
    size_t target = SIZE_MAX;
    int64_t expert = 0;
    std::vector<int64_t> starts = {};  // of each piece
    std::vector<uint8_t> bytes = {};
  };

  Entry& find(size_t target, int64_t expert) {
    for (Entry& e : entries_)
      if (e.target == target && e.expert == expert) return e;
    Entry& oldest = entries_[turn_++ % std::size(entries_)];
    const Pieces pieces = pieces_in(plan_, plan_.packed[target], expert, expert + 1);
    oldest.target = SIZE_MAX;  // until the entry is complete
    oldest.bytes.resize(size_t(pieces.source_bytes));
    source_.read(worker_, pieces, oldest.bytes.data());
    oldest.starts.clear();
    for (const Piece& p : pieces.list) oldest.starts.push_back(p.source_at);
    oldest.target = target, oldest.expert = expert;
    return oldest;
  }

  const Plan& plan_;
  Source& source_;
  Worker& worker_;
  Entry entries_[8];  // codes, scales and biases of both matrices of an expert, and two more
  size_t turn_ = 0;
};

RestoredFiles::RestoredFiles(const PackedCheckpoint& packed, const PackedSet& set, Source& source)
    : packed_(packed), plan_(set.plan), source_(source), segments_(packed.manifest.source.shards.size()) {
  for (size_t i = 0; i < plan_.copy_pieces.size(); ++i) add(CopyJob{i, i + 1});
  for (size_t i = 0; i < plan_.packed.size(); i += size_t(plan_.tp_size)) {
    const PackedTensor& t = plan_.packed[i];
    if (t.part == Part::residual) continue;  // made from the scales, which have their own segments
    const auto experts = int64_t(plan_.model->layers[size_t(t.layer)].experts.size());
    for (int64_t e = 0; e < experts; ++e) add(PackJob{i, e, e + 1});
  }
  for (size_t i = 0; i < segments_.size(); ++i) sort_and_check(i);
}

RestoredFiles::~RestoredFiles() = default;

void RestoredFiles::add(const Job& job) {
  const Pieces pieces = pieces_in(plan_, job);
  for (size_t i = 0; i < pieces.list.size(); ++i) {
    const TensorRange& range = pieces.list[i].range;
    if (range.bytes > 0) segments_[size_t(range.tensor->file)].push_back({range, job, i});
  }
}

/// Checks that the segments, after the header, cover the whole file.
void RestoredFiles::sort_and_check(size_t index) {
  std::vector<Segment>& list = segments_[index];
  std::sort(list.begin(), list.end(),
            [](const Segment& a, const Segment& b) { return a.range.in_file() < b.range.in_file(); });
  const Shard& shard = packed_.manifest.source.shards[index];
  int64_t at = 8 + shard.header.bytes;
  for (const Segment& s : list) {
    if (s.range.in_file() != at) fail(ErrorKind::input, "{}: byte {} belongs to no tensor; damaged?", shard.name, at);
    at += s.range.bytes;
  }
  if (at != shard.state.bytes)
    fail(ErrorKind::input, "{}: {} bytes, {} expected; damaged?", shard.name, at, shard.state.bytes);
}

bool RestoredFiles::has_experts(size_t shard) const {
  return std::any_of(segments_[shard].begin(), segments_[shard].end(),
                     [](const Segment& s) { return std::holds_alternative<PackJob>(s.job); });
}

void RestoredFiles::restore(size_t shard, Worker& worker, const Sink& sink) const {
  const std::string header = with_length(packed_.manifest.source.shards[shard].header.read());
  sink(reinterpret_cast<const uint8_t*>(header.data()), int64_t(header.size()));
  Unpacked unpacked(plan_, source_, worker);
  for (const Segment& s : segments_[shard]) {
    throw_if_interrupted();
    if (const auto* job = std::get_if<PackJob>(&s.job)) {
      sink(unpacked.piece(*job, s.piece), s.range.bytes);
      continue;
    }
    uint8_t* const data = worker.source.reserve(s.range.bytes);
    source_.read(worker, pieces_in(plan_, s.job), data);
    sink(data, s.range.bytes);
  }
}

}  // namespace mxfp4
