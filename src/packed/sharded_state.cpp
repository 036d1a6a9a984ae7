#include "src/packed/sharded_state.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "src/base/signals.h"
#include "src/base/threads.h"
#include "src/checkpoint/shard_reader.h"
#include "src/device/pipeline.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace {

/// How a checkpoint's tensor is split over the ranks. kv_rows: rows of whole key and value heads; if there are more
/// ranks than heads, several ranks have the same rows.
enum class Split { none, rows, kv_rows, columns };

/// `target` null: the same name as `source`.
struct Rule {
  const char* source;
  const char* target;
  Split split;
};

/// A target has the rows of its sources in this order. Source: SGLang v0.5.17, models/gpt_oss.py and its linear layers.
/// Every rank holds o_proj's whole bias, which only rank 0 adds.
constexpr Rule model_rules[] = {
    {"model.embed_tokens.weight", nullptr, Split::rows},
    {"lm_head.weight", nullptr, Split::rows},
    {"model.norm.weight", nullptr, Split::none},
};
constexpr Rule layer_rules[] = {
    {"input_layernorm.weight", nullptr, Split::none},
    {"post_attention_layernorm.weight", nullptr, Split::none},
    {"self_attn.q_proj.weight", "self_attn.qkv_proj.weight", Split::rows},
    {"self_attn.k_proj.weight", "self_attn.qkv_proj.weight", Split::kv_rows},
    {"self_attn.v_proj.weight", "self_attn.qkv_proj.weight", Split::kv_rows},
    {"self_attn.q_proj.bias", "self_attn.qkv_proj.bias", Split::rows},
    {"self_attn.k_proj.bias", "self_attn.qkv_proj.bias", Split::kv_rows},
    {"self_attn.v_proj.bias", "self_attn.qkv_proj.bias", Split::kv_rows},
    {"self_attn.o_proj.weight", nullptr, Split::columns},
    {"self_attn.o_proj.bias", nullptr, Split::none},
    {"self_attn.sinks", nullptr, Split::rows},
    {"mlp.router.weight", nullptr, Split::none},
    {"mlp.router.bias", nullptr, Split::none},
};

constexpr int64_t vocabulary_multiple = 64;  // SGLang pads embeddings to multiples of this

std::string part_name(int rank, int part) { return fmt::format("model-rank-{}-part-{}.safetensors", rank, part); }

class StatePlanner {
 public:
  StatePlanner(const Plan& plan, Problems& problems) : plan_(plan), problems_(problems) {
    for (size_t i = 0; i < plan.copied.size(); ++i) copied_[plan.copied[i].source->name] = int(i);
    kv_heads_ = config_count(plan.checkpoint->config, "num_key_value_heads", 0);
  }

  std::vector<StateFile> run() {
    if (!can_be_served()) return {};
    std::vector<StateFile> files;
    for (int rank = 0; rank < plan_.tp_size; ++rank)
      if (!problems_.any()) files.push_back(file_of(rank));  // other ranks would have the same problems
    for (const auto& [name, index] : copied_)
      if (!used_.count(index)) problems_.error(printable(name), "has no place in SGLang's state of GPT-OSS");
    return files;
  }

 private:
  bool can_be_served() {
    const std::string engine = plan_.backend->engine, backend = plan_.backend->name;
    if (engine != "sglang" || (backend != "marlin" && backend != "flashinfer-cutlass"))
      fail(ErrorKind::usage,
           "--format {} is for engine sglang with backend marlin or flashinfer-cutlass, not for {} of {}",
           sharded_state_format, backend, engine);
    const bool gpt_oss = plan_.model->family == "gpt-oss" && plan_.model->model_type == "gpt_oss";
    if (!gpt_oss)
      problems_.error(config_name, "--format {} is for GPT-OSS, not for model_type '{}' of family {}",
                      sharded_state_format, plan_.model->model_type, plan_.model->family);
    else if (kv_heads_ == 0)
      problems_.error(config_name, "no num_key_value_heads");
    return gpt_oss && kv_heads_ > 0;
  }

  StateFile file_of(int rank) {
    rank_ = rank;
    tensors_.clear();
    for (const Rule& rule : model_rules) add("", rule);
    for (const MoeLayer& layer : plan_.model->layers) {
      const std::string prefix = layer.module.substr(0, layer.module.rfind("mlp."));
      for (const Rule& rule : layer_rules) add(prefix, rule);
      add_constants(layer);
    }
    return laid_out();
  }

  void add(const std::string& prefix, const Rule& rule) {
    const auto found = copied_.find(prefix + rule.source);
    if (found == copied_.end()) return problems_.error(printable(prefix + rule.source), "missing");
    used_.insert(found->second);
    const Tensor& source = *plan_.copied[size_t(found->second)].source;
    const std::string name = prefix + (rule.target ? rule.target : rule.source);
    Dims shape = source.shape;
    StateTensor::Block block;
    if (!cut(rule.split, source, shape, block)) return;
    block.copied = found->second;
    if (tensors_.empty() || tensors_.back().tensor.name != name)
      tensors_.push_back({{name, source.dtype, shape, 0, 0, 0}, {}, 0});
    else
      tensors_.back().tensor.shape[0] += shape[0];
    StateTensor& t = tensors_.back();
    t.blocks.push_back(block);
    t.tensor.bytes += block.rows * block.run;
  }

  /// The rank's share of `source`, as a block and its shape. False, with a problem, if the tensor does not split.
  bool cut(Split split, const Tensor& source, Dims& shape, StateTensor::Block& block) {
    const int64_t rows = shape.empty() ? 0 : shape[0], size = plan_.tp_size;
    if (rows == 0 || (split == Split::columns && shape.size() != 2))
      return complain(source, "another number of dimensions was expected");
    const int64_t row_bytes = source.bytes / rows;
    block = {0, 0, rows, row_bytes, row_bytes};
    if (split == Split::columns) {
      if (shape[1] % size) return complain(source, fmt::format("columns do not split into {} ranks", size));
      shape[1] /= size;
      block.run /= size;
      block.begin = rank_ * block.run;
    } else if (split != Split::none) {
      const int64_t parts = split == Split::kv_rows ? std::min(size, kv_heads_) : size;
      if (rows % parts || size % parts || (split == Split::kv_rows && kv_heads_ % parts))
        return complain(source, fmt::format("rows do not split into {} ranks", size));
      if (source.name.ends_with("embed_tokens.weight") && rows % vocabulary_multiple)
        return complain(source,
                        fmt::format("SGLang pads a vocabulary that is not a multiple of {}", vocabulary_multiple));
      shape[0] = block.rows = rows / parts;
      block.begin = rank_ / (size / parts) * block.rows * row_bytes;
    }
    return true;
  }

  bool complain(const Tensor& source, const std::string& what) {
    problems_.error(plan_.checkpoint->where(source), "{}: {}", describe(source.dtype, source.shape), what);
    return false;
  }

  void add_constants(const MoeLayer& layer) {
    if (!plan_.backend->constants) return;
    const auto experts = int64_t(layer.experts.size());
    const LayerSize padded = rank_size(*plan_.backend, layer, plan_.tp_size);
    for (const Constant& c : plan_.backend->constants(*plan_.model)) {
      const Dims shape = c.shape(experts, padded);
      const int64_t bytes = tensor_bytes(Dtype::F32, shape);
      tensors_.push_back({{layer.module + "." + c.name, Dtype::F32, shape, 0, 0, bytes}, {}, float(c.value)});
    }
  }

  StateFile laid_out() {
    std::stable_sort(tensors_.begin(), tensors_.end(), [](const StateTensor& a, const StateTensor& b) {
      return bits_of(a.tensor.dtype) > bits_of(b.tensor.dtype);
    });
    std::vector<Tensor> list;
    int64_t end = 0;
    for (StateTensor& t : tensors_) {
      t.tensor.offset = end;
      end += t.tensor.bytes;
      list.push_back(t.tensor);
    }
    StateFile f{{part_name(rank_, 0), write_header(list, {{"format", "pt"}, {"mxfp4_pack", "1"}}, page), 0}, tensors_};
    for (StateTensor& t : f.tensors) t.tensor.offset += int64_t(f.file.header.size());
    f.file.bytes = int64_t(f.file.header.size()) + end;
    return f;
  }

  const Plan& plan_;
  Problems& problems_;
  std::map<std::string, int> copied_;  // indices of plan.copied
  std::set<int> used_;
  int64_t kv_heads_ = 0;
  int rank_ = 0;
  std::vector<StateTensor> tensors_;
};

/// Renames the packed files to the ranks' parts, from 1 on.
void name_rank_parts(Plan& plan) {
  std::map<int, std::set<int>> files;  // of each rank
  for (const PackedTensor& t : plan.packed) files[t.rank].insert(t.file);
  for (const auto& [rank, own] : files) {
    int part = 0;
    for (int file : own) plan.files[size_t(file)].name = part_name(rank, ++part);
  }
}

/// Reads bytes [offset, offset + bytes) of plan.copied[copied].
using ReadCopied = std::function<void(int copied, int64_t offset, int64_t bytes, uint8_t* to)>;
/// Receives the bytes of a state file in order.
using UseBytes = std::function<void(const uint8_t* data, int64_t bytes, int64_t offset)>;

/// Reads a block's rows, several at a time.
void make_block(const StateTensor::Block& b, int64_t offset, const ReadCopied& read, const UseBytes& use) {
  const int64_t step = std::max<int64_t>(1, copy_piece_bytes / b.stride);
  std::vector<uint8_t> data;
  for (int64_t row = 0; row < b.rows; row += step) {
    const int64_t rows = std::min(step, b.rows - row);
    data.resize(size_t((rows - 1) * b.stride + b.run));
    read(b.copied, b.begin + row * b.stride, int64_t(data.size()), data.data());
    for (int64_t r = 1; r < rows && b.run < b.stride; ++r)
      std::memmove(data.data() + r * b.run, data.data() + r * b.stride, size_t(b.run));
    use(data.data(), rows * b.run, offset + row * b.run);
  }
}

/// Makes the whole file, header first.
void make_file(const StateFile& f, const ReadCopied& read, const UseBytes& use) {
  use(reinterpret_cast<const uint8_t*>(f.file.header.data()), int64_t(f.file.header.size()), 0);
  for (const StateTensor& t : f.tensors) {
    int64_t offset = t.tensor.offset;
    if (t.blocks.empty()) {
      const std::vector<float> values(size_t(t.tensor.bytes / 4), t.value);
      use(reinterpret_cast<const uint8_t*>(values.data()), t.tensor.bytes, offset);
    }
    for (const StateTensor::Block& b : t.blocks) {
      make_block(b, offset, read, use);
      offset += b.rows * b.run;
    }
  }
}

std::vector<StateFile> plan_state(const Plan& plan, Problems& problems) { return StatePlanner(plan, problems).run(); }

}  // namespace

std::vector<StateFile> add_state(Plan& plan, Problems& problems) {
  std::vector<StateFile> state = plan_state(plan, problems);
  name_rank_parts(plan);
  for (const StateFile& f : state) {
    plan.files.push_back(f.file);
    plan.file_bytes += f.file.bytes;
  }
  return state;
}

void write_state(const Plan& plan, const std::vector<StateFile>& files, const OutputDir& out, int threads) {
  run_jobs(int64_t(files.size()), threads, [&](int64_t i) {
    const StateFile& f = files[size_t(i)];
    const auto read = [&](int copied, int64_t offset, int64_t bytes, uint8_t* to) {
      const CopiedTensor& t = plan.copied[size_t(copied)];
      const std::string& name = plan.files[size_t(*t.file)].name;
      open_read(out.built(), name).read(to, bytes, t.offset + offset);
    };
    const Fd fd = out.create(f.file.name, f.file.bytes);
    make_file(f, read, [&](const uint8_t* data, int64_t bytes, int64_t offset) {
      throw_if_interrupted();
      fd.write(data, bytes, offset);
    });
    fd.sync();
  });
}

std::string guard_index() {
  return Json{{"metadata", {{"mxfp4_pack", "load it with --load-format sharded_state"}}},
              {"weight_map", {{"lm_head.weight", guard_file}}}}
             .dump(2) +
         "\n";
}

void verify_state(const PackedCheckpoint& p, int threads, Problems& problems) {
  const std::vector<StateFile> files = plan_state(p.sets.front().plan, problems);
  std::vector<std::string> paths;
  for (const StateFile& f : files) paths.push_back(p.held.path(f.file.name, problems));
  if (problems.any()) return;
  const ShardReader reader(p.files);
  std::mutex mutex;
  run_jobs(int64_t(files.size()), threads, [&](int64_t i) {
    const StateFile& f = files[size_t(i)];
    const Fd fd = open_read(paths[size_t(i)], f.file.name);
    int64_t wrong = fd.stat().st_size == f.file.bytes ? 0 : f.file.bytes, first = 0;
    std::vector<uint8_t> is;
    const auto read = [&](int copied, int64_t offset, int64_t bytes, uint8_t* to) {
      reader.read({&p.copied[size_t(copied)], offset, bytes}, to);
    };
    if (wrong == 0)
      make_file(f, read, [&](const uint8_t* data, int64_t bytes, int64_t offset) {
        is.resize(size_t(bytes));
        fd.read(is.data(), bytes, offset);
        for (int64_t b = 0; b < bytes; ++b)
          if (is[size_t(b)] != data[b] && wrong++ == 0) first = offset + b;
      });
    const std::lock_guard lock(mutex);
    if (wrong) problems.error(f.file.name, "{} bytes differ from the copied tensors, the first at {}", wrong, first);
  });
}

}  // namespace mxfp4
