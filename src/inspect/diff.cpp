#include "src/inspect/diff.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "src/backends/serve.h"
#include "src/base/log.h"
#include "src/base/terminal.h"
#include "src/inspect/diff_cause.h"
#include "src/inspect/diff_lines.h"
#include "src/inspect/diff_side.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/pieces.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// Restores the memory order of a strided view that was saved by its logical shape. Other tensors are unchanged.
std::string in_memory_order(const PackedTensor& t, const Tensor& theirs, std::string bytes) {
  if (!t.parameter->view || theirs.shape == t.shape) return bytes;
  const View v = t.parameter->view(t.shape);
  if (theirs.shape != v.shape || int64_t(bytes.size()) != t.bytes) return bytes;
  int64_t count = 1;
  for (int64_t d : v.shape) count *= d;
  const int64_t width = t.bytes / count;
  std::string out(bytes.size(), '\0');
  for (int64_t i = 0; i < count; ++i) {
    int64_t to = 0, rest = i;
    for (size_t d = v.shape.size(); d-- > 0; rest /= v.shape[d]) to += rest % v.shape[d] * v.strides[d];
    std::memcpy(&out[size_t(to * width)], &bytes[size_t(i * width)], size_t(width));
  }
  return out;
}

class Comparison {
 public:
  /// `prefix` begins every line.
  Comparison(const PackedCheckpoint& a, SetRank part, const Side& ours, const Side& theirs, std::string prefix = {})
      : set_(a.sets[part.set]), rank_(part.rank), ours_(ours), theirs_(theirs), prefix_(std::move(prefix)) {}

  void run_packed() {
    for (const size_t i : tensors_of(set_, rank_)) compare(set_.plan.packed[i].name, &set_.plan.packed[i]);
  }
  void run_copied() {
    for (const CopiedTensor& t : set_.plan.copied) compare(t.source->name, nullptr);
  }
  void check_in_a(const std::string& name) {
    if (!ours_.tensors.contains(plain_name(name))) say(name, "not in A");
  }
  const std::vector<Difference>& differences() const { return differences_; }
  int64_t compared() const { return compared_; }

 private:
  /// fact: see Difference; empty: `what`.
  void say(const std::string& name, const std::string& what, const std::string& fact = {}) {
    const std::string tensor = prefix_ + printable(name);
    differences_.push_back({tensor + ": " + what, tensor, fact.empty() ? what : fact});
  }

  void compare(const std::string& name, const PackedTensor* packed) {
    const auto a = ours_.tensors.find(plain_name(name)), b = theirs_.tensors.find(plain_name(name));
    if (b == theirs_.tensors.end()) return packed || theirs_.backend ? say(name, "not in B") : void();
    ++compared_;
    const std::string mine = ours_.read(a->second);
    std::string other = theirs_.read(b->second);
    if (packed) other = in_memory_order(*packed, b->second, std::move(other));
    if (mine.size() != other.size())
      return say(name, fmt::format("{} in B, {} in A", describe(b->second.dtype, b->second.shape),
                                   describe(a->second.dtype, a->second.shape)));
    if (mine == other) return;
    packed ? say_packed(*packed, mine, other) : say_copied(name, a->second, mine, other);
  }

  void say_copied(const std::string& name, const Tensor& t, const std::string& mine, const std::string& other) {
    const auto first = int64_t(std::mismatch(mine.begin(), mine.end(), other.begin()).first - mine.begin());
    const int64_t columns = t.shape.empty() ? 1 : t.shape.back(), element = first * 8 / bits_of(t.dtype);
    const std::string fact = "a copied tensor differs";
    say(name, fmt::format("{}, first in row {}, column {}", fact, element / columns, element % columns), fact);
  }

  void say_packed(const PackedTensor& t, const std::string& mine, const std::string& other) {
    const auto at = [&](const std::string& s, int64_t e) {
      return reinterpret_cast<const uint8_t*>(s.data()) + e * t.slice_bytes;
    };
    int64_t first = -1, experts = 0, bytes = 0;
    const int64_t count = t.bytes / t.slice_bytes;
    for (int64_t e = 0; e < count; ++e) {
      int64_t wrong = 0;
      for (int64_t i = 0; i < t.slice_bytes; ++i) wrong += at(mine, e)[i] != at(other, e)[i];
      if (wrong && experts++ == 0) first = e;
      bytes += wrong;
    }
    const std::string cause =
        likely_cause(set_.plan, t, first, *device_, {at(mine, first), at(other, first), theirs_.backend});
    say(t.name,
        fmt::format("{} of {} differ, {} of {} bytes; first {}{}", experts, counted(count, "expert"), bytes, t.bytes,
                    place(t, first, at(mine, first), at(other, first)), cause.empty() ? "" : "; " + cause),
        "experts differ; " + cause);
  }

  /// The expert, row and column of the first different element, as counted in the checkpoint.
  std::string place(const PackedTensor& t, int64_t e, const uint8_t* mine, const uint8_t* other) {
    const int64_t byte = std::mismatch(mine, mine + t.slice_bytes, other).first - mine;
    if (set_.plan.backend->rewrite) return fmt::format("in expert {}, byte {}", e, byte);
    const Pieces pieces = pieces_in(set_.plan, t, e, e + 1);
    std::vector<uint8_t> a(size_t(pieces.canonical_bytes)), b = a;
    const PadReport x = unpack_experts(pieces, t, *device_, mine, a.data()).front();
    const PadReport y = unpack_experts(pieces, t, *device_, other, b.data()).front();
    const auto differ = std::mismatch(a.begin(), a.end(), b.begin()).first;
    if (differ == a.end())
      return fmt::format("in expert {}, byte {}, a {}", e, byte, x.copies.wrong || y.copies.wrong ? "copy" : "pad");
    const int64_t offset = differ - a.begin();
    const MoeLayer& layer = set_.plan.model->layers[size_t(t.layer)];
    const int64_t k = t.role == Role::w13 ? layer.hidden : layer.intermediate;
    const int64_t width = row_bytes(t.part, *t.parameter, k);
    const int64_t row = offset / width, column = offset % width;
    const bool odd = t.part == Part::codes && (a[size_t(offset)] & 15) == (b[size_t(offset)] & 15);
    return fmt::format("in expert {}, row {} of the checkpoint's, {} {}: {:#04x} in B, {:#04x} in A", e, row,
                       t.part == Part::scales ? "group" : "column",
                       t.part == Part::codes  ? column * 2 + odd
                       : t.part == Part::bias ? 0
                                              : column / scale_bytes(*t.parameter),
                       b[size_t(offset)], a[size_t(offset)]);
  }

  const PackedSet& set_;
  int rank_;
  const Side &ours_, &theirs_;
  std::string prefix_;
  std::unique_ptr<Device> device_ = open_cpu();
  std::vector<Difference> differences_;
  int64_t compared_ = 0;
};

std::string title(const ManifestSet& set) {
  return fmt::format("{}, layout version {}", describe(set), set.layout_version);
}

/// "marlin of vllm at tp 4, ranks 0, 1", or without the ranks if they are all ranks of the set.
std::string describe(const ManifestSet& set, const std::vector<int>& ranks) {
  if (int(ranks.size()) == set.tp_size) return describe(set);
  return fmt::format("{}, {} {}", describe(set), ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

bool has_rank(const ManifestSet& set, int rank) { return rank < set.tp_size; }

std::unique_ptr<PackedCheckpoint> open_output(const std::string& path, int rank) {
  Problems problems;
  auto p = open_packed(path, problems);
  problems.throw_if_any();
  const auto& sets = p->manifest.sets;
  if (rank >= 0 && std::none_of(sets.begin(), sets.end(), [&](const ManifestSet& s) { return has_rank(s, rank); }))
    fail(ErrorKind::usage, "{}: no rank {} in it", printable(path), rank);
  return p;
}

/// The compared sets, and their differences.
struct Result {
  std::vector<std::string> sides;  // names A and B, if their titles differ
  std::vector<Difference> differences;
  std::vector<std::pair<const ManifestSet*, int>> parts;  // of A, with the rank
  int64_t compared = 0, different = 0;                    // tensors
  int64_t alone = 0;                                      // sets in only one of the outputs

  void add(const Comparison& c) {
    different += int64_t(c.differences().size());
    differences.insert(differences.end(), c.differences().begin(), c.differences().end());
    compared += c.compared();
  }
};

/// Compares every rank of every set that both outputs have. Sets match if engine, backend and tensor-parallel size are
/// the same. If each output has one set and these do not match, the two are compared anyway.
class OutputComparison {
 public:
  OutputComparison(const DiffOptions& o, const PackedCheckpoint& a, const PackedCheckpoint& b) : o_(o), a_(a), b_(b) {
    add_pairs([](const ManifestSet& x, const ManifestSet& y) {
      return x.engine == y.engine && x.backend == y.backend && x.tp_size == y.tp_size;
    });
    if (pairs_.empty() && a.sets.size() == 1 && b.sets.size() == 1)
      add_pairs([](const ManifestSet&, const ManifestSet&) { return true; });
  }

  Result run() {
    for (const auto& [mine, other] : pairs_) compare(mine, other);
    if (pairs_.empty()) compare_copied();
    add_unpaired(a_, o_.a, &std::pair<SetRank, SetRank>::first);
    add_unpaired(b_, o_.b, &std::pair<SetRank, SetRank>::second);
    return std::move(result_);
  }

 private:
  bool is_asked(int rank) const { return o_.rank < 0 || o_.rank == rank; }

  template <class Same>
  void add_pairs(Same same) {
    const auto &ours = a_.manifest.sets, &theirs = b_.manifest.sets;
    for (size_t i = 0; i < ours.size(); ++i)
      for (int rank = 0; rank < ours[i].tp_size; ++rank)
        for (size_t j = 0; j < theirs.size(); ++j)
          if (is_asked(rank) && same(ours[i], theirs[j]) && has_rank(theirs[j], rank))
            pairs_.push_back({{i, rank}, {j, rank}});
  }

  void compare(SetRank mine, SetRank other) {
    const ManifestSet &x = a_.manifest.sets[mine.set], &y = b_.manifest.sets[other.set];
    const bool first_rank = result_.parts.empty() || result_.parts.back().first != &x;
    if (first_rank && title(x) != title(y))
      result_.sides.push_back(
          fmt::format("A, {}, is {}; B, {}, is {}", printable(o_.a), title(x), printable(o_.b), title(y)));
    const Side ours = side_of(a_, mine), theirs = side_of(b_, other);
    Comparison c(a_, mine, ours, theirs, pairs_.size() > 1 ? describe(x, {mine.rank}) + ": " : "");
    c.run_packed();
    const PackedSet& set = b_.sets[other.set];
    for (const size_t i : tensors_of(set, other.rank)) c.check_in_a(set.stored[i].name);
    result_.add(c);
    if (result_.parts.empty()) compare_copied();
    result_.parts.emplace_back(&x, mine.rank);
  }

  void compare_copied() {
    const SetRank first{0, 0};
    const Side ours = side_of(a_, first), theirs = side_of(b_, first);
    Comparison c(a_, first, ours, theirs);
    c.run_copied();
    for (const Tensor& t : b_.copied) c.check_in_a(t.name);
    result_.add(c);
  }

  void add_unpaired(const PackedCheckpoint& p, const std::string& name, SetRank std::pair<SetRank, SetRank>::*side) {
    for (size_t i = 0; i < p.sets.size(); ++i) {
      std::vector<int> alone;
      for (int rank = 0; rank < p.manifest.sets[i].tp_size; ++rank)
        if (is_asked(rank) && std::none_of(pairs_.begin(), pairs_.end(), [&](const auto& pair) {
              return (pair.*side).set == i && (pair.*side).rank == rank;
            }))
          alone.push_back(rank);
      if (alone.empty()) continue;
      ++result_.alone;
      result_.differences.push_back(
          {fmt::format("only in {}: {}", printable(name), describe(p.manifest.sets[i], alone)), {}, {}});
    }
  }

  const DiffOptions& o_;
  const PackedCheckpoint &a_, &b_;
  std::vector<std::pair<SetRank, SetRank>> pairs_;
  Result result_;
};

/// Compares an output with a dump. A dump of one rank does not name its set, so the set with the fewest differences is
/// reported.
Result compare_with_dump(const DiffOptions& o, const PackedCheckpoint& a) {
  const Side theirs = side_of_dump(o.b);
  const int rank = std::max(0, o.rank);
  Result best;
  bool has_packed = false;
  for (size_t i = 0; i < a.sets.size(); ++i) {
    const ManifestSet& set = a.manifest.sets[i];
    if (!has_rank(set, rank)) continue;
    const Side ours = side_of(a, {i, rank});
    Comparison c(a, {i, rank}, ours, theirs);
    c.run_packed();
    has_packed |= c.compared() > 0;
    c.run_copied();
    if (!best.parts.empty() && c.differences().size() >= best.differences.size()) continue;
    best = {};
    best.add(c);
    best.parts = {{&set, rank}};
  }
  if (best.parts.empty()) fail(ErrorKind::usage, "{}: no rank {} in it", printable(o.a), rank);
  if (!has_packed)
    note(fmt::format(
        "{} holds no packed tensor; if it is the checkpoint, compare with: mxfp4-pack verify {} --source {}", o.b,
        shell_word(o.a), shell_word(o.b)));
  else if (a.sets.size() > 1)
    note(fmt::format("{} is nearest to {}", o.b, describe(*best.parts.front().first)));
  return best;
}

Json to_json(const Result& r) {
  Json sets = Json::array();
  for (const auto& [set, rank] : r.parts)
    sets.push_back({{"engine", set->engine}, {"backend", set->backend}, {"moe_tp_size", set->tp_size}, {"rank", rank}});
  Json lines = Json::array();
  for (const Difference& d : r.differences) lines.push_back(d.line);
  return {{"equal", lines.empty()}, {"compared", r.compared}, {"sets", sets}, {"differences", lines}};
}

void print_text(const Result& r) {
  const bool equal = r.differences.empty();
  if (equal && verbosity() == Verbosity::quiet) return;
  for (const std::string& line : r.sides) print_out("{}\n", fitted(line));
  print_differences(r.differences);
  const std::string alone =
      r.alone ? fmt::format("; {} set{} in one only", r.alone, r.alone > 1 ? "s are" : " is") : "";
  const std::string parts = r.parts.size() > 1 ? fmt::format(" of {} sets and ranks", r.parts.size()) : "";
  print_out("{}\n", fitted(equal ? fmt::format("{} tensors{} are equal", r.compared, parts)
                                 : fmt::format("{} compared, {} differ or are not in both{}",
                                               counted(r.compared, "tensor"), r.different, alone)));
}

}  // namespace

bool diff(const DiffOptions& o) {
  const auto a = open_output(o.a, o.rank);
  const auto b = has_manifest(o.b) ? open_output(o.b, o.rank) : nullptr;
  Result r = b ? OutputComparison(o, *a, *b).run() : compare_with_dump(o, *a);
  if (r.compared == 0)
    r.differences.push_back({fmt::format("{}: none of {}'s tensors is in it", printable(o.b), printable(o.a)), {}, {}});
  if (o.json)
    print_out("{}\n", one_line(to_json(r)));
  else
    print_text(r);
  return r.differences.empty();
}

}  // namespace mxfp4
