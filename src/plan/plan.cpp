#include "src/plan/plan.h"

#include <algorithm>
#include <unordered_set>

#include "src/backends/parallel.h"
#include "src/plan/canonical.h"
#include "src/plan/jobs.h"

namespace mxfp4 {

namespace {

const Slice& slice_of(const Projection& p, Part part) {
  return part == Part::codes ? p.codes : part == Part::bias ? p.bias : p.scales;  // a residual is made of scales
}

int alignment_of(Dtype d) { return std::max(1, bits_of(d) / 8); }

/// A rank's share of the intermediate columns. GPT-OSS: whole groups, rounded up, the last rank takes the rest.
/// DeepSeek-V4 and others: equal shares. Count 0 or below: the rank would be empty.
Span rank_span(const Model& model, int64_t intermediate, int size, int rank) {
  const int64_t groups = intermediate / group;
  const int64_t share = model.pairs ? (groups + size - 1) / size * group : intermediate / size;
  const int64_t begin = share * rank;
  return {begin, std::min(share, intermediate - begin)};
}

class Planner {
 public:
  Planner(Plan& plan, const PlanOptions& options, Problems& problems)
      : plan_(plan),
        options_(options),
        problems_(problems),
        tensors_in_(plan.checkpoint->shards.size()),
        max_file_bytes_(file_limit(*plan.checkpoint)) {
    for (const Tensor& t : plan.checkpoint->tensors) ++tensors_in_[size_t(t.file)];
  }

  void run() {
    for (int i = 0; i < int(plan_.model->layers.size()); ++i) add_layer(i);
    if (problems_.any()) return;
    place_packed();
    place_copied();
    add_jobs(plan_, options_);
    check_names();
  }

 private:
  void add_layer(int index) {
    const MoeLayer& layer = plan_.model->layers[size_t(index)];
    const Expert& expert = layer.experts.front();
    if (const std::string why = obstacle(layer); !why.empty()) return problems_.error(layer.module, "{}", why);
    for (Role role : roles)
      for (Part part : parts) {
        if (plan_.backend->parameter(role, part).name.empty()) continue;
        if (!slice_of(role == Role::w13 ? expert.gate : expert.down, part).piece.tensor) continue;
        for (int rank = 0; rank < plan_.tp_size; ++rank) add_tensor(index, role, part, rank);
      }
  }

  /// The reason why a layer cannot be written; empty if it can.
  std::string obstacle(const MoeLayer& layer) const {
    const int size = plan_.tp_size;
    if (splits(*plan_.model, layer, size)) {
      const Backend& b = *plan_.backend;
      const std::string why = refusal(b, *plan_.model, layer, size);
      return why.empty() ? why : fmt::format("{} of {} cannot serve it: {}", b.name, b.engine, why);
    }
    const std::vector<int> sizes = tp_sizes(*plan_.model);
    const bool is_short = plan_.model->pairs && layer.intermediate % group == 0;
    return fmt::format(
        "intermediate {} does not split into {} ranks of whole groups of {}{}{}", layer.intermediate, size, group,
        is_short ? ": the last would hold none, and the empty slice that engines give it has no packed form" : "",
        sizes.empty() ? "" : fmt::format("; --tp-size {} would do", fmt::join(sizes, ", ")));
  }

  void add_tensor(int index, Role role, Part part, int rank) {
    const MoeLayer& layer = plan_.model->layers[size_t(index)];
    PackedTensor t;
    t.parameter = &plan_.backend->parameter(role, part);
    t.name = layer.module + "." + t.parameter->name;
    t.layer = index;
    t.role = role;
    t.part = part;
    t.rank = rank;
    t.intermediate = rank_span(*plan_.model, layer.intermediate, plan_.tp_size, rank);
    const Shape nk = matrix_size(role, rank_size(*plan_.backend, layer, plan_.tp_size)), padded = plan_.padded_shape(t);
    if (!fits(t.parameter->layout, padded)) {
      problems_.error(printable(t.name), "{} rows of {} bytes do not fit {}", padded.n, padded.b,
                      name_of(t.parameter->layout));
      return;
    }
    t.shape = t.parameter->shape(nk.n, nk.b);
    t.shape.insert(t.shape.begin(), int64_t(layer.experts.size()));
    t.slice_bytes = mxfp4::packed_bytes(t.parameter->layout, padded);
    t.bytes = t.slice_bytes * int64_t(layer.experts.size());
    if (tensor_bytes(t.parameter->dtype, t.shape) != t.bytes)
      fail(ErrorKind::input, "{}: shape {} is not {} bytes", t.name, describe(t.parameter->dtype, t.shape), t.bytes);
    plan_.packed_bytes += t.bytes;
    plan_.padding_bytes += t.bytes - real_bytes(t, layer);
    plan_.packed.push_back(std::move(t));
  }

  static int64_t real_bytes(const PackedTensor& t, const MoeLayer& layer) {
    if (t.part == Part::residual) return t.bytes;
    const Shape nk = matrix_size(t.role, {layer.hidden, t.intermediate.count});
    return nk.n * row_bytes(t.part, *t.parameter, nk.b) * copies_of(t.parameter->layout) *
           int64_t(layer.experts.size());
  }

  /// The size limit of a file: a sixteenth of the checkpoint, so that 16 threads can write to different files, but at
  /// least 1 GB and at most 5 GB.
  static int64_t file_limit(const Checkpoint& checkpoint) {
    int64_t all = 0;
    for (const Tensor& t : checkpoint.tensors) all += t.bytes;
    return std::clamp<int64_t>(all / 16, 1'000'000'000, 5'000'000'000);
  }

  /// Files of at most max_file_bytes_ for each rank; a layer stays together unless it is larger.
  void place_packed() {
    const size_t ranks = size_t(plan_.tp_size);  // whose tensors take turns
    for (size_t r = 0; r < ranks; ++r) {
      std::vector<int> mine;
      for (size_t i = r; i < plan_.packed.size(); i += ranks) mine.push_back(int(i));
      const auto files = split(mine);
      for (size_t f = 0; f < files.size(); ++f) write_packed_header(file_name(int(r), f + 1), files[f]);
    }
  }

  std::string file_name(int rank, size_t number) const {
    const std::string set = options_.set ? fmt::format("set{}-", options_.set) : "";
    const std::string stem = plan_.tp_size == 1 ? "packed" : fmt::format("tp{}-rank{}", plan_.tp_size, rank);
    return fmt::format("packed/{}{}-{:05}.safetensors", set, stem, number);
  }

  std::vector<std::vector<int>> split(const std::vector<int>& tensors) const {
    const auto at = [&](size_t i) -> const PackedTensor& { return plan_.packed[size_t(tensors[i])]; };
    std::vector<std::vector<int>> files;
    int64_t used = 0;
    const auto next_file = [&] {
      files.emplace_back();
      used = 0;
    };
    for (size_t i = 0; i < tensors.size();) {
      size_t end = i;
      int64_t layer_bytes = 0;
      for (; end < tensors.size() && at(end).layer == at(i).layer; ++end) layer_bytes += at(end).bytes;
      if (files.empty() || (used > 0 && used + layer_bytes > max_file_bytes_)) next_file();
      for (; i < end; ++i) {
        if (used > 0 && used + at(i).bytes > max_file_bytes_) next_file();
        files.back().push_back(tensors[i]);
        used += at(i).bytes;
      }
    }
    return files;
  }

  /// Tensors of whole pages come first, so that each of their experts stays page-aligned; then by alignment.
  void write_packed_header(const std::string& name, std::vector<int> members) {
    const auto rank = [&](int i) {
      const PackedTensor& t = plan_.packed[size_t(i)];
      return t.bytes % page == 0 ? 0 : 1 + 64 - alignment_of(t.parameter->dtype);
    };
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return rank(a) < rank(b); });
    std::vector<Tensor> tensors;
    for (int i : members) {
      const PackedTensor& t = plan_.packed[size_t(i)];
      tensors.push_back({t.name, t.parameter->dtype, t.shape, 0, 0, t.bytes});
    }
    const int64_t data = add_file(name, tensors);
    for (size_t m = 0; m < members.size(); ++m) {
      plan_.packed[size_t(members[m])].file = int(plan_.files.size()) - 1;
      plan_.packed[size_t(members[m])].offset = data + tensors[m].offset;
    }
  }

  void place_copied() {
    std::vector<const Tensor*> rest = plan_.model->rest;
    if (options_.set) {
      for (const Tensor* t : rest) plan_.copied.push_back({t, std::nullopt, 0});
      return;
    }
    if (options_.keep_shards)
      for (int shard = 0; shard < int(plan_.checkpoint->shards.size()); ++shard) keep_shard(shard, rest);
    place_rest(rest);
  }

  /// Makes a separate file of each shard without experts, unless its name is one of this tool's own names.
  void keep_shard(int shard, std::vector<const Tensor*>& rest) {
    const Shard& s = plan_.checkpoint->shards[size_t(shard)];
    const auto first = std::partition_point(rest.begin(), rest.end(), [=](auto* t) { return t->file < shard; });
    const auto end = std::partition_point(first, rest.end(), [=](auto* t) { return t->file == shard; });
    if (end - first != tensors_in_[size_t(shard)] || is_own_name(s.name)) return;
    OutFile file{s.name, with_length(s.header.read()), s.state.bytes, &s};
    for (auto t = first; t != end; ++t) plan_.copied.push_back({*t, int(plan_.files.size()), (*t)->offset});
    plan_.file_bytes += file.bytes;
    plan_.files.push_back(std::move(file));
    rest.erase(first, end);
  }

  /// Lays out copied tensors in the order of the checkpoint, and within a file by alignment.
  void place_rest(const std::vector<const Tensor*>& rest) {
    int number = 0;
    for (size_t i = 0; i < rest.size();) {
      int64_t used = 0;
      std::vector<const Tensor*> members;
      for (; i < rest.size() && (members.empty() || used + rest[i]->bytes <= max_file_bytes_); ++i) {
        members.push_back(rest[i]);
        used += rest[i]->bytes;
      }
      std::stable_sort(members.begin(), members.end(), [](const Tensor* a, const Tensor* b) {
        return alignment_of(a->dtype) > alignment_of(b->dtype);
      });
      std::vector<Tensor> tensors;
      for (const Tensor* t : members) tensors.push_back({t->name, t->dtype, t->shape, 0, 0, t->bytes});
      const int64_t data = add_file(fmt::format("rest-{:05}.safetensors", ++number), tensors);
      for (size_t m = 0; m < members.size(); ++m)
        plan_.copied.push_back({members[m], int(plan_.files.size()) - 1, data + tensors[m].offset});
    }
  }

  /// Sets the tensors' offsets within the data; returns the offset of the data in the file.
  int64_t add_file(const std::string& name, std::vector<Tensor>& tensors) {
    int64_t end = 0;
    for (Tensor& t : tensors) {
      t.offset = end;
      end += t.bytes;
    }
    const Metadata mark = {{"format", "pt"}, {"mxfp4_pack", "1"}};
    OutFile file{name, write_header(tensors, mark, page), 0};
    const auto data = int64_t(file.header.size());
    file.bytes = data + end;
    plan_.file_bytes += file.bytes;
    plan_.files.push_back(std::move(file));
    return data;
  }

  void check_names() {
    std::unordered_set<std::string_view> names;
    for (const Tensor* t : plan_.model->rest) names.insert(t->name);
    for (const PackedTensor& t : plan_.packed)
      if (t.rank == 0 && !names.insert(t.name).second)
        problems_.error(printable(t.name), "a packed tensor would have the name of another tensor");
  }

  Plan& plan_;
  const PlanOptions& options_;
  Problems& problems_;
  std::vector<int64_t> tensors_in_;  // of each shard
  int64_t max_file_bytes_;           // unless one tensor is larger
};

}  // namespace

Shape Plan::padded_shape(const PackedTensor& t) const {
  const MoeLayer& layer = model->layers[size_t(t.layer)];
  if (t.part == Part::residual) return {1, row_bytes(t.part, *t.parameter, 1)};
  const Shape nk = matrix_size(t.role, rank_size(*backend, layer, tp_size));
  return {nk.n, round_up(row_bytes(t.part, *t.parameter, nk.b), t.parameter->columns)};
}

LayerSize rank_size(const Backend& backend, const MoeLayer& layer, int tp_size) {
  return padded_size(backend, rank_share(layer, tp_size));
}

Plan make_plan(const Checkpoint& ck, const Model& model, const Backend& backend, const PlanOptions& options,
               Problems& problems) {
  Plan plan;
  plan.checkpoint = &ck;
  plan.model = &model;
  plan.backend = &backend;
  plan.tp_size = options.tp_size;
  plan.set = options.set;
  Planner(plan, options, problems).run();
  return plan;
}

std::vector<TensorRange> pieces_of(const PackedTensor& t, const Expert& e) {
  if (t.role == Role::w2) return {slice_of(e.down, t.part).piece};
  const TensorRange &gate = slice_of(e.gate, t.part).piece, &up = slice_of(e.up, t.part).piece;
  if (gate == up) return {gate};
  return {gate, up};
}

int64_t source_bytes(const PackedTensor& t, const Expert& expert) {
  int64_t bytes = 0;
  for (const TensorRange& piece : pieces_of(t, expert)) bytes += piece.bytes;
  return bytes;
}

template <class T>
BasicMatrix<T> matrix_of(const Plan& plan, const PackedTensor& t, const Expert& e, T* const pieces[2]) {
  const MoeLayer& layer = plan.model->layers[size_t(t.layer)];
  const bool w13 = t.role == Role::w13;
  const Span span = t.intermediate;
  BasicMatrix<T> m;
  m.views = w13 ? 2 : 1;
  m.real = w13 ? Shape{span.count, row_bytes(t.part, *t.parameter, layer.hidden)}
               : Shape{layer.hidden, row_bytes(t.part, *t.parameter, span.count)};
  const bool is_zero = !w13 && t.part == Part::bias && t.rank > 0;  // ranks are summed: the bias is added once
  if (is_zero) m.real.n = 0;
  m.padded = plan.padded_shape(t);
  m.order = t.parameter->order.value_or(plan.backend->w13_order(*plan.model));
  m.pad = t.parameter->pad;
  if (is_zero) m.pad.row = 0;
  m.add = t.parameter->add;
  const bool one_piece = pieces_of(t, e).size() == 1;
  const auto view = [&](const Projection& p, int piece) {
    const Slice& s = slice_of(p, t.part);
    const Width width = width_of(t.part, s.piece.tensor->dtype, *t.parameter);
    const int64_t stride = width.to_canonical(s.stride);
    const int64_t first = w13                    ? span.begin * stride
                          : t.part == Part::bias ? 0
                                                 : row_bytes(t.part, *t.parameter, span.begin);
    return BasicRows<T>{pieces[piece] + width.to_canonical(s.offset) + first, stride};
  };
  m.view[0] = view(w13 ? e.gate : e.down, 0);
  if (w13) m.view[1] = view(e.up, one_piece ? 0 : 1);
  return m;
}

template Matrix matrix_of(const Plan&, const PackedTensor&, const Expert&, const uint8_t* const[2]);
template MutableMatrix matrix_of(const Plan&, const PackedTensor&, const Expert&, uint8_t* const[2]);

}  // namespace mxfp4
