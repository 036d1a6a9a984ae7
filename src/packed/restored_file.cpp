#include "src/packed/restored_file.h"

#include <algorithm>

#include "src/base/signals.h"
#include "src/device/pipeline.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

/// Bytes of a shard with one origin: a piece of a copied tensor, or of one expert's packed matrix.
struct RestoredFiles::Segment {
  int64_t offset, bytes;  // in the shard
  bool is_copied;
  CopyPiece copied = {};         // if copied
  size_t target = 0, piece = 0;  // if packed: indices of Plan::packed and of pieces_in()
  int64_t expert = 0;
};

/// The matrices that a thread unpacked last. One packed matrix gives both gate and up of an expert, which are separate
/// in a shard.
class RestoredFiles::Unpacked {
 public:
  Unpacked(const Plan& plan, Source& source, Worker& worker) : plan_(plan), source_(source), worker_(worker) {}

  const uint8_t* piece(const Segment& s) {
    Entry& entry = find(s.target, s.expert);
    return entry.bytes.data() + entry.starts[s.piece];
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
    source_.read_pieces(worker_, pieces, oldest.bytes.data());
    oldest.starts.clear();
    for (const PieceAt& p : pieces.list) oldest.starts.push_back(p.source_at);
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
  add_copied();
  add_packed();
  for (size_t i = 0; i < segments_.size(); ++i) sort_and_check(i);
}

RestoredFiles::~RestoredFiles() = default;

void RestoredFiles::add_copied() {
  for (const CopyPiece& p : plan_.copy_pieces) {
    const Tensor& t = *plan_.copied[size_t(p.copied)].source;
    segments_[size_t(t.file)].push_back(
        {.offset = t.offset + p.begin, .bytes = p.bytes, .is_copied = true, .copied = p});
  }
}

void RestoredFiles::add_packed() {
  for (size_t i = 0; i < plan_.packed.size(); i += plan_.tp.ranks.size()) {
    const PackedTensor& t = plan_.packed[i];
    if (t.part == Part::residual) continue;  // made from the scales, which have their own segments
    const auto experts = int64_t(plan_.model->layers[size_t(t.layer)].experts.size());
    for (int64_t e = 0; e < experts; ++e) {
      const Pieces pieces = pieces_in(plan_, t, e, e + 1);
      for (size_t p = 0; p < pieces.list.size(); ++p) {
        const Slice& s = pieces.list[p].slice;
        segments_[size_t(s.tensor->file)].push_back({.offset = s.tensor->offset + s.piece,
                                                     .bytes = s.piece_bytes,
                                                     .is_copied = false,
                                                     .target = i,
                                                     .piece = p,
                                                     .expert = e});
      }
    }
  }
}

/// Checks that the segments, after the header, cover the whole file.
void RestoredFiles::sort_and_check(size_t index) {
  std::vector<Segment>& list = segments_[index];
  std::erase_if(list, [](const Segment& s) { return s.bytes == 0; });
  std::sort(list.begin(), list.end(), [](const Segment& a, const Segment& b) { return a.offset < b.offset; });
  const Shard& shard = packed_.manifest.source.shards[index];
  int64_t at = 8 + shard.header.bytes;
  for (const Segment& s : list) {
    if (s.offset != at) fail(ErrorKind::input, "{}: byte {} belongs to no tensor; damaged?", shard.name, at);
    at += s.bytes;
  }
  if (at != shard.state.bytes)
    fail(ErrorKind::input, "{}: {} bytes, {} expected; damaged?", shard.name, at, shard.state.bytes);
}

bool RestoredFiles::has_experts(size_t shard) const {
  return std::any_of(segments_[shard].begin(), segments_[shard].end(), [](const Segment& s) { return !s.is_copied; });
}

void RestoredFiles::restore(size_t shard, Worker& worker, const Sink& sink) const {
  const std::string header = with_length(packed_.manifest.source.shards[shard].header.read());
  sink(reinterpret_cast<const uint8_t*>(header.data()), int64_t(header.size()));
  Unpacked unpacked(plan_, source_, worker);
  for (const Segment& s : segments_[shard]) {
    throw_if_interrupted();
    if (!s.is_copied) {
      sink(unpacked.piece(s), s.bytes);
      continue;
    }
    uint8_t* const data = worker.source.reserve(s.bytes);
    source_.read_copied(plan_, {&s.copied, 1}, data, {});
    sink(data, s.bytes);
  }
}

}  // namespace mxfp4
