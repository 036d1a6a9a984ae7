#include "src/convert/contents.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "kernels/moe/moe_simd.h"
#include "src/checkpoint/shard_reader.h"
#include "src/convert/zero_runs.h"
#include "src/models/layer_names.h"
#include "src/packed/checksums.h"
#include "src/plan/pieces.h"

namespace mxfp4 {

namespace {

/// How a dtype encodes NaN and infinity: all bits of `mask` are set. sign: the bit above the mask. bytes 0: the dtype
/// is not checked.
struct Exponent {
  int64_t bytes = 0;
  uint32_t mask = 0, sign = 0;
  bool has_infinity = true;
  bool needs_sign = false;  // E8M0: NaN also has the sign bit, because a mask of all 8 bits would have no bit above it
};
Exponent exponent_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F8_E4M3:
      return {1, 0x7F, 0x80, false};
    case Dtype::F8_E5M2:
      return {1, 0x7C, 0x80};
    case Dtype::F8_E8M0:
      return {1, 0x7F, 0x80, false, true};
    case Dtype::BF16:
      return {2, 0x7F80, 0x8000};
    case Dtype::F16:
      return {2, 0x7C00, 0x8000};
    case Dtype::F32:
      return {4, 0x7F800000, 0x80000000};
    default:
      return {};
  }
}

/// Repeats a number's bits in a word of 8 bytes.
uint64_t in_each(uint32_t bits, int64_t bytes) {
  if (bytes == 1) bits |= bits << 8;
  if (bytes <= 2) bits |= bits << 16;
  return uint64_t(bits) << 32 | bits;
}

/// Adds the exponent's lowest bit to each number's exponent, and ors the sums: a carry into the sign bit means that all
/// bits of an exponent are set. There is no branch per word, so compilers vectorise the loop.
MXFP4_EVERY_WIDTH uint64_t carries_of(const uint8_t* data, int64_t bytes, uint64_t mask, uint64_t lowest) {
  uint64_t found = 0, word = 0;
  int64_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    std::memcpy(&word, data + at, 8);
    found |= (word & mask) + lowest;
  }
  word = 0;
  std::memcpy(&word, data + at, size_t(bytes - at));
  return found | ((word & mask) + lowest);
}

/// Whether any number has all bits of the exponent.
bool has_exponent(const uint8_t* data, int64_t bytes, const Exponent& e) {
  if (e.needs_sign) return std::memchr(data, e.mask | e.sign, size_t(bytes));
  return carries_of(data, bytes, in_each(e.mask, e.bytes), in_each(e.mask & -e.mask, e.bytes)) &
         in_each(e.sign, e.bytes);
}

/// `data` has whole numbers only.
void mark_numbers(const uint8_t* data, int64_t bytes, const Exponent& e, uint8_t* to) {
  if (!has_exponent(data, bytes, e)) return;
  uint8_t marks = 0;
  for (int64_t at = 0; at < bytes; at += e.bytes) {
    uint32_t number = 0;
    std::memcpy(&number, data + at, size_t(e.bytes));
    if ((number & e.mask) != e.mask || (e.needs_sign && !(number & e.sign))) continue;
    const bool is_nan = !e.has_infinity || (number & ~(e.mask | e.sign));
    marks |= is_nan ? mark::nan : number & e.sign ? mark::minus_infinity : mark::plus_infinity;
  }
  std::atomic_ref(*to).fetch_or(marks, std::memory_order_relaxed);  // several jobs share a tensor
}

/// tid2eid: DeepSeek-V4's table of the experts for each token.
bool is_weight(const Tensor& t) {
  return t.name.ends_with("weight") || t.name.ends_with("weight_packed") || t.name.ends_with("tid2eid");
}

/// A matrix of weights. Training leaves no zeros there, except in LoRA's second matrix, which starts with zeros.
bool is_matrix(const Tensor& t) { return t.shape.size() > 1 && is_weight(t) && !contains_any(t.name, {"lora_"}); }

/// Scales of a quantised tensor with at least two groups.
bool is_scales(const Tensor& t) {
  const auto ends_with = [&](std::string_view end) { return t.name.ends_with(end); };
  const bool is_called_so =
      ends_with(".scale") || ends_with("weight_scale") || ends_with("_scales") || ends_with("scale_inv");
  return is_called_so && t.bytes * 8 > bits_of(t.dtype);
}

/// The dtype of a copied tensor's numbers. Scales in U8 are E8M0 bytes.
Dtype numbers_of(const Tensor& t) { return t.dtype == Dtype::U8 && is_scales(t) ? Dtype::F8_E8M0 : t.dtype; }

bool is_norm(const Tensor& t) {
  return t.shape.size() == 1 && t.name.ends_with("weight") && contains_any(t.name, {"norm", "ln_", ".ln"});
}

/// Whether norms multiply by 1 + weight: their weights start with zeros.
bool centres_norms_on_zero(const Plan& plan) {
  if (config_flag(plan.checkpoint->config, "use_gemma_norm").value_or(false)) return true;  // MiniMax-M3
  for (const char* type : {"gemma", "qwen3_next", "qwen3_5"})
    if (plan.model->model_type.starts_with(type)) return true;
  return false;
}

/// The length in bytes of a run of zeros that is marked in a piece of a tensor. Experts and matrices have single rows
/// of zeros, and norms have single zeros.
int64_t marked_zeros(const Plan& plan, const Tensor& t, int64_t piece_bytes) {
  if (is_norm(t) && !centres_norms_on_zero(plan)) return 128;
  if (t.shape.size() < 2) return 0;
  return piece_bytes >= (1 << 20) ? 32 << 10 : 4 << 10;
}
int64_t marked_zeros_of_copied(const Plan& plan, const Tensor& t) {
  return is_matrix(t) || is_scales(t) || is_norm(t) ? marked_zeros(plan, t, t.bytes) : 0;
}

bool is_zeros(const uint8_t* data, int64_t bytes) {
  uint64_t first = 0;
  std::memcpy(&first, data, 8);
  return first == 0 && std::memcmp(data, data + 8, size_t(bytes - 8)) == 0;
}

/// Checks whole blocks of `block` bytes.
void mark_zeros(const uint8_t* data, int64_t bytes, int64_t block, uint8_t* to) {
  for (int64_t at = 0; at + block <= bytes; at += block)
    if (is_zeros(data + at, block))
      return void(std::atomic_ref(*to).fetch_or(mark::zero_block, std::memory_order_relaxed));
}

class Contents {
 public:
  Contents(const Plan& plan, const Checksums& sums, const ShardReader* reader)
      : plan_(plan), sums_(sums), reader_(reader) {}

  bool check(bool allowed, Problems& problems) {
    look_at_packed();
    look_at_copied();
    if (zero_rows_.count) problems.warn(zero_rows_.first, "{}", zero_rows_.text());
    bool is_good = true;
    for (const Kind* kind : {&experts_, &matrices_, &norms_, &holes_, &nans_, &infinities_}) {
      if (!kind->count) continue;
      is_good = false;
      allowed ? problems.warn(kind->first, "{}", kind->text()) : problems.error(kind->first, "{}", kind->text());
    }
    if (!is_good && !allowed)
      problems.error(plan_.checkpoint->dir, "damaged; fetch it again, or give --allow-incomplete to convert it");
    return is_good;
  }

 private:
  struct Kind {
    const char *what, *one, *many;
    int64_t count = 0;
    std::string first = {}, last = {};

    void add(std::string name) {
      if (count++ == 0)
        first = std::move(name);
      else
        last = std::move(name);
    }
    std::string text() const {
      if (count == 1) return what;
      const std::string more =
          count == 2 ? fmt::format("does 1 more {}", one) : fmt::format("do {} more {}", count - 1, many);
      return fmt::format("{}, as {}, the last {}", what, more, last);
    }
  };

  void look_at_packed() {
    for (size_t i = 0; i < plan_.packed.size(); i += size_t(plan_.tp_size)) {
      const PackedTensor& t = plan_.packed[i];
      const int64_t experts = int64_t(plan_.model->layers[size_t(t.layer)].experts.size());
      const SourceSums& sums = sums_.packed[i].sources;
      if (t.part == Part::codes || t.part == Part::scales)
        for (const Piece& p : pieces_in(plan_, t, 0, experts).list) look_at_matrix(sums, p);
      const auto sources = sources_of(plan_, t);
      for (size_t s = 0; s < sources.size(); ++s) {
        look_at_numbers(*sources[s], sums.marks[s]);
        look_for_holes(*sources[s], sums.marks[s], sources[s]->bytes / int64_t(sums.hashes[s].size()));
      }
    }
  }

  void look_at_matrix(const SourceSums& sums, const Piece& p) {
    if (!is_zeros(sums.hashes[p.tensor][p.number], p.range.bytes)) return;
    const bool is_stacked = p.range.bytes < p.range.tensor->bytes;
    experts_.add(plan_.checkpoint->where(*p.range.tensor) + (is_stacked ? fmt::format(", expert {}", p.expert) : ""));
  }

  void look_at_copied() {
    const bool skips_norms = centres_norms_on_zero(plan_);
    for (size_t i = 0; i < plan_.copied.size(); ++i) {
      const Tensor& t = *plan_.copied[i].source;
      look_at_numbers(t, sums_.copied.marks[i]);
      look_for_holes(t, sums_.copied.marks[i], t.bytes);
      Kind* kind = is_matrix(t) || is_scales(t) ? &matrices_ : is_norm(t) && !skips_norms ? &norms_ : nullptr;
      if (kind && is_zeros(sums_.copied.hashes[i], t.bytes)) kind->add(plan_.checkpoint->where(t));
    }
  }

  /// Looks for zeros within pieces. Pieces that consist of zeros only are reported elsewhere.
  void look_for_holes(const Tensor& t, uint8_t marks, int64_t piece) {
    if (!(marks & mark::zero_block) || !reader_) return;
    const ZeroRuns runs = zero_runs(*reader_, t, 2 * marked_zeros(plan_, t, piece), piece);
    const int64_t end_of_data = plan_.checkpoint->shards[size_t(t.file)].state.bytes - t.offset;
    const Hole hole = worst_hole(t, runs, piece, end_of_data);
    if (hole.kind == Hole::torn)
      holes_.add(fmt::format("{}, bytes {}-{} of {}", plan_.checkpoint->where(t), hole.begin, hole.end - 1, t.bytes));
    else if (hole.kind == Hole::rows)
      zero_rows_.add(fmt::format("{}, rows {}-{}", plan_.checkpoint->where(t), hole.begin, hole.end - 1));
  }

  bool is_zeros(const std::vector<Hash>& pieces, int64_t bytes) {
    for (size_t i = 0; i < pieces.size(); ++i)
      if (!is_zeros(pieces[i], std::min(copy_piece_bytes, bytes - int64_t(i) * copy_piece_bytes))) return false;
    return !pieces.empty();
  }

  bool is_zeros(const Hash& hash, int64_t bytes) {
    const auto [known, is_new] = hashes_.try_emplace(bytes);
    if (is_new) known->second = hash_of_zeros(bytes);
    return XXH128_isEqual(known->second, hash);
  }

  static Hash hash_of_zeros(int64_t bytes) {
    static const std::vector<uint8_t> zeros(size_t(1) << 20);
    Hasher hasher;
    for (int64_t at = 0; at < bytes; at += int64_t(zeros.size()))
      hasher.take(zeros.data(), std::min(int64_t(zeros.size()), bytes - at));
    return hasher.hash();
  }

  /// -infinity is allowed in masks, attention sinks, and routers' biases, where such experts are never chosen.
  void look_at_numbers(const Tensor& t, uint8_t marks) {
    if (marks & mark::nan) nans_.add(plan_.checkpoint->where(t));
    const bool masks = !is_weight(t) && contains_any(t.name, {"mask", "sink", "router", "gate.", "correction_bias"});
    if (marks & (masks ? mark::plus_infinity : mark::plus_infinity | mark::minus_infinity))
      infinities_.add(plan_.checkpoint->where(t));
  }

  const Plan& plan_;
  const Checksums& sums_;
  const ShardReader* const reader_;
  std::map<int64_t, Hash> hashes_;  // of zeros, by their number of bytes
  Kind experts_{"holds only zeros", "expert matrix", "expert matrices"};
  Kind matrices_{"holds only zeros", "weight", "weights"}, norms_{"holds only zeros", "norm", "norms"};
  Kind holes_{"has a hole of zeros", "tensor", "tensors"}, zero_rows_{"has rows of zeros only", "tensor", "tensors"};
  Kind nans_{"holds NaN", "tensor", "tensors"}, infinities_{"holds infinity", "tensor", "tensors"};
};

}  // namespace

void NumberScanner::operator()(const uint8_t* data, int64_t bytes) {
  while (bytes > 0 && next_ < pieces_.size()) {
    const Numbers& piece = pieces_[next_];
    const Exponent e = exponent_of(piece.dtype);
    int64_t taken = std::min(bytes, piece.bytes - taken_);
    if (piece.zeros && in_split_ == 0) mark_zeros(data, taken, piece.zeros, piece.marks);
    if (e.bytes && (in_split_ > 0 || taken < e.bytes)) {  // complete a number that is split between blocks
      split_[in_split_++] = *data;
      if (in_split_ == e.bytes) mark_numbers(split_, e.bytes, e, piece.marks), in_split_ = 0;
      taken = 1;
    } else if (e.bytes) {
      taken -= taken % e.bytes;
      mark_numbers(data, taken, e, piece.marks);
    }
    data += taken;
    bytes -= taken;
    taken_ += taken;
    if (taken_ == piece.bytes) ++next_, taken_ = 0;
  }
}

NumberScanner source_scanner(const Pieces& pieces, Checksums& sums) {
  SourceSums& sources = sums.sources_of(pieces);
  std::vector<NumberScanner::Numbers> list;
  for (const Piece& p : pieces.list) {
    const Tensor& t = *p.range.tensor;
    const bool is_bias = pieces.tensor && pieces.tensor->part == Part::bias;
    list.push_back({.dtype = pieces.tensor && !is_bias ? Dtype::U8
                             : is_bias                 ? t.dtype
                                                       : numbers_of(t),
                    .bytes = p.range.bytes,
                    .marks = &sources.marks_of(p),
                    .zeros = !pieces.tensor ? marked_zeros_of_copied(pieces.plan, t)
                             : is_bias      ? 0
                                            : marked_zeros(pieces.plan, t, p.range.bytes)});
  }
  return NumberScanner(std::move(list));
}

bool check_contents(const Plan& plan, const Checksums& sums, const ShardReader* reader, bool allowed,
                    Problems& problems) {
  return Contents(plan, sums, reader).check(allowed, problems);
}

}  // namespace mxfp4
