#include "src/diff.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "src/diff_cause.h"
#include "src/log.h"
#include "src/packed_checkpoint.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// Tensors by name, of one side. Engines put their own words into names: see plain_name().
struct Side {
  Checkpoint files;
  std::map<std::string, Tensor> tensors;
  std::unique_ptr<ShardReader> reader;

  std::string read(const Tensor& t) const {
    std::string out(size_t(t.bytes), '\0');
    reader->read(t, 0, t.bytes, out.data());
    return out;
  }
};

/// Without "model." in front and vLLM's "routed_experts." inside.
std::string plain_name(std::string name) {
  constexpr std::string_view inside = "routed_experts.", front = "model.";
  if (const size_t at = name.find(inside); at != name.npos) name.erase(at, inside.size());
  if (name.starts_with(front)) name.erase(0, front.size());
  return name;
}

void add(Side& side, const Tensor& t) { side.tensors.emplace(plain_name(t.name), t); }

/// The packed tensors of one rank, and the copied ones.
Side side_of(const PackedCheckpoint& p, int rank) {
  Side side;
  side.files = p.files;
  const PackedSet& set = p.sets.front();
  for (size_t i = 0; i < set.stored.size(); ++i)
    if (set.plan.packed[i].rank == rank) add(side, set.stored[i]);
  for (const Tensor& t : p.copied) add(side, t);
  side.reader = std::make_unique<ShardReader>(side.files);
  return side;
}

/// A safetensors file, or every one below a directory.
Side side_of_dump(const std::string& path) {
  std::vector<std::string> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  } else {
    files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) fail(Kind::input, "{}: no *.safetensors in it", printable(path));
  Side side;
  Problems problems;
  for (const std::string& file : files) {
    for (Tensor& t : read_header(file, file, problems).tensors) {
      t.file = int(side.files.shards.size());
      add(side, t);
    }
    side.files.shards.push_back({file, file, state_of(open_read(file).stat())});
  }
  problems.throw_if_any();
  side.reader = std::make_unique<ShardReader>(side.files);
  return side;
}

/// A strided view saved by its logical shape, put back into the order of its memory. Unchanged for any other tensor.
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
  Comparison(const PackedCheckpoint& a, const Side& ours, const Side& theirs, int rank)
      : set_(a.sets.front()), ours_(ours), theirs_(theirs), rank_(rank) {}

  void run() {
    for (const PackedTensor& t : set_.plan.packed)
      if (t.rank == rank_) compare(t.name, &t);
    for (const CopiedTensor& t : set_.plan.copied) compare(t.source->name, nullptr);
  }
  const std::vector<std::string>& lines() const { return lines_; }
  int64_t compared() const { return compared_; }

 private:
  template <class... Args>
  void say(const std::string& name, fmt::format_string<Args...> format, Args&&... args) {
    lines_.push_back(fmt::format("{}: {}", printable(name), fmt::format(format, std::forward<Args>(args)...)));
  }

  void compare(const std::string& name, const PackedTensor* packed) {
    const auto a = ours_.tensors.find(plain_name(name)), b = theirs_.tensors.find(plain_name(name));
    if (b == theirs_.tensors.end()) return packed ? say(name, "not there") : void();
    ++compared_;
    const std::string mine = ours_.read(a->second);
    std::string other = theirs_.read(b->second);
    if (packed) other = in_memory_order(*packed, b->second, std::move(other));
    if (mine.size() != other.size())
      return say(name, "{}, {} here", describe(b->second.dtype, b->second.shape),
                 describe(a->second.dtype, a->second.shape));
    if (mine == other) return;
    packed ? say_packed(*packed, mine, other) : say_copied(name, a->second, mine, other);
  }

  void say_copied(const std::string& name, const Tensor& t, const std::string& mine, const std::string& other) {
    const auto first = int64_t(std::mismatch(mine.begin(), mine.end(), other.begin()).first - mine.begin());
    const int64_t columns = t.shape.empty() ? 1 : t.shape.back(), element = first * 8 / bits_of(t.dtype);
    say(name, "a copied tensor differs, first in row {}, column {}", element / columns, element % columns);
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
    const std::string cause = likely_cause(set_.plan, t, first, *device_, at(mine, first), at(other, first));
    say(t.name, "{} of {} experts differ, {} of {} bytes; first {}{}", experts, count, bytes, t.bytes,
        place(t, first, at(mine, first), at(other, first)), cause.empty() ? "" : "; " + cause);
  }

  /// Expert, row and column of the first element that differs, as the checkpoint counts them.
  std::string place(const PackedTensor& t, int64_t e, const uint8_t* mine, const uint8_t* other) {
    const int64_t byte = std::mismatch(mine, mine + t.slice_bytes, other).first - mine;
    if (set_.plan.backend->rewrite) return fmt::format("in expert {}, byte {}", e, byte);
    const Pieces pieces = pieces_in(set_.plan, t, e, e + 1);
    std::vector<uint8_t> a(size_t(pieces.canonical_bytes)), b = a;
    unpack_experts(set_.plan, t, e, e + 1, pieces, *device_, mine, a.data());
    unpack_experts(set_.plan, t, e, e + 1, pieces, *device_, other, b.data());
    const auto differ = std::mismatch(a.begin(), a.end(), b.begin()).first;
    if (differ == a.end()) return fmt::format("in expert {}, byte {}, a pad", e, byte);
    const int64_t offset = differ - a.begin();
    const MoeLayer& layer = set_.plan.model->layers[size_t(t.layer)];
    const int64_t k = t.role == Role::w13 ? layer.hidden : layer.intermediate;
    const int64_t width = t.part == Part::codes    ? k / 2
                          : t.part == Part::scales ? k / group
                                                   : bits_of(t.parameter->dtype) / 8;
    const int64_t row = offset / width, column = offset % width;
    const bool odd = t.part == Part::codes && (a[size_t(offset)] & 15) == (b[size_t(offset)] & 15);
    return fmt::format("in expert {}, row {} of the checkpoint's, {} {}: {:#04x} there, {:#04x} here", e, row,
                       t.part == Part::scales ? "group" : "column",
                       t.part == Part::codes  ? column * 2 + odd
                       : t.part == Part::bias ? 0
                                              : column,
                       b[size_t(offset)], a[size_t(offset)]);
  }

  const PackedSet& set_;
  const Side &ours_, &theirs_;
  int rank_;
  std::unique_ptr<Device> device_ = open_cpu();
  std::vector<std::string> lines_;
  int64_t compared_ = 0;
};

bool is_output(const std::string& path) { return fs::exists(fs::path(path) / manifest_name); }

std::unique_ptr<PackedCheckpoint> open_output(const std::string& path, int rank) {
  Problems problems;
  auto p = open_packed(path, problems);
  problems.throw_if_any();
  const auto& ranks = p->sets.front().plan.tp.ranks;
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end())
    fail(Kind::usage, "{}: no rank {} in it", printable(path), rank);
  return p;
}

std::string title(const PackedCheckpoint& p) {
  const Plan& plan = p.sets.front().plan;
  return fmt::format("{} of {}, layout version {}", plan.backend->name, plan.backend->engine,
                     plan.backend->layout_version);
}

}  // namespace

bool diff(const DiffOptions& o) {
  if (!is_output(o.a))
    fail(Kind::input, "{}: no {}; an output of 'mxfp4-pack convert' first", printable(o.a), manifest_name);
  const auto a = open_output(o.a, o.rank);
  std::unique_ptr<PackedCheckpoint> b;
  std::vector<std::string> lines;
  if (is_output(o.b)) {
    b = open_output(o.b, o.rank);
    if (title(*a) != title(*b)) lines.push_back(fmt::format("{} is {}; {} is {}", o.a, title(*a), o.b, title(*b)));
  }
  const Side ours = side_of(*a, o.rank), theirs = b ? side_of(*b, o.rank) : side_of_dump(o.b);
  Comparison comparison(*a, ours, theirs, o.rank);
  comparison.run();
  lines.insert(lines.end(), comparison.lines().begin(), comparison.lines().end());
  if (comparison.compared() == 0) lines.push_back(fmt::format("{}: none of {}'s tensors is in it", o.b, o.a));
  if (o.json) {
    const Json j = {{"equal", lines.empty()}, {"compared", comparison.compared()}, {"differences", lines}};
    fmt::print("{}\n", j.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const std::string& line : lines) fmt::print("{}\n", line);
    if (lines.empty() && verbosity() != Verbosity::quiet) fmt::print("{} tensors are equal\n", comparison.compared());
  }
  return lines.empty();
}

}  // namespace mxfp4
