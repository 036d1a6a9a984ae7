#include "src/packed/canary.h"

#include <cstring>

#include "src/device/pipeline.h"
#include "src/plan/pieces.h"
#include "src/plan/rewrite.h"

namespace mxfp4 {

namespace {

constexpr int64_t experts = 2;

int64_t remainder(int64_t size) { return size % 256 ? size % 256 : 256; }

/// A model of one layer. Its tensors are consecutive in `data`: codes, scales and bias of w13 and w2.
struct Tiny {
  Checkpoint checkpoint;
  Model model;
  std::string data;
};

/// Deterministic bytes: all 16 codes, scales from 110 to 134, small biases.
void fill(Part part, uint64_t seed, uint8_t* p, int64_t bytes) {
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < bytes; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    const auto r = uint8_t(x >> 32);
    p[i] = part == Part::codes ? r : part == Part::scales ? uint8_t(110 + r % 25) : i % 2 ? uint8_t(0x3C + r % 4) : r;
  }
}

/// One part of w13 or w2 of all experts, with rows of `row` bytes.
struct Stacked {
  Role role;
  Part part;
  int64_t n, row;
};

/// Appends a tensor with its bytes.
const Tensor* add_tensor(Tiny& tiny, const Stacked& s) {
  const bool bias = s.part == Part::bias;
  const char* const suffix = s.part == Part::codes ? "" : bias ? "_bias" : "_scale";
  Tensor t{.name = "in." + std::string(name_of(s.role)) + suffix,
           .dtype = bias ? Dtype::BF16 : Dtype::U8,
           .shape = bias ? Dims{experts, s.n} : Dims{experts, s.n, s.row},
           .offset = int64_t(tiny.data.size()),
           .bytes = experts * s.n * s.row};
  tiny.data.resize(tiny.data.size() + size_t(t.bytes));
  fill(s.part, uint64_t(tiny.checkpoint.tensors.size() + 1), reinterpret_cast<uint8_t*>(tiny.data.data()) + t.offset,
       t.bytes);
  return &tiny.checkpoint.tensors.emplace_back(std::move(t));
}

/// Gives expert e its rows of a tensor.
void add_rows(Expert& expert, int64_t e, const Stacked& s, const Tensor* tensor, bool pairs) {
  const auto put = [&](Projection& p, int64_t first, int64_t step) {
    Slice& slice = s.part == Part::codes ? p.codes : s.part == Part::scales ? p.scales : p.bias;
    slice = {{tensor, e * s.n * s.row, s.n * s.row}, first * s.row, step * s.row};
  };
  if (s.role == Role::w2) return put(expert.down, 0, 1);
  put(expert.gate, 0, pairs ? 2 : 1);
  put(expert.up, pairs ? 1 : s.n / 2, pairs ? 2 : 1);
}

Tiny make_tiny(const Model& like) {
  const MoeLayer& real = like.layers.front();
  const int64_t h = 256 + real.hidden % 256, i = remainder(real.intermediate);
  Tiny tiny;
  tiny.checkpoint.shards.push_back({"in", {}, {}});
  tiny.checkpoint.tensors.reserve(6);
  tiny.model.pairs = like.pairs;
  tiny.model.bias = like.bias;
  MoeLayer layer{LayerKind::model, 0, "out", h, i, std::vector<Expert>(experts)};
  for (Role role : roles)
    for (Part part : parts) {
      if (part == Part::residual || (part == Part::bias && !like.bias)) continue;
      const int64_t n = role == Role::w13 ? 2 * i : h, k = role == Role::w13 ? h : i;
      const Stacked s{role, part, n, part == Part::codes ? k / 2 : part == Part::scales ? k / group : 2};
      const Tensor* tensor = add_tensor(tiny, s);
      for (int64_t e = 0; e < experts; ++e) add_rows(layer.experts[size_t(e)], e, s, tensor, like.pairs);
    }
  tiny.model.layers.push_back(std::move(layer));
  return tiny;
}

/// The engine's parameter for one expert before conversion: rows as loaded, padded.
std::string raw_rows(const Model& model, Matrix m) {
  m.order = loaded_order(model);
  std::string out(size_t(m.padded.n * m.padded.b), '\0');
  for (int64_t n = 0; n < m.padded.n; ++n) {
    auto* row = reinterpret_cast<uint8_t*>(out.data()) + n * m.padded.b;
    const RowSource from = m.source(n);
    const int64_t real = from.row < m.real.n ? m.real.b : 0;
    if (real) std::memcpy(row, m.view[from.view].data + from.row * m.view[from.view].stride, size_t(real));
    for (int64_t b = real; b < m.padded.b; ++b) row[b] = m.pad_byte(n, b);
  }
  return out;
}

/// A safetensors file to which tensors are appended.
struct File {
  std::vector<Tensor> tensors;
  std::string data;
  void put(std::string name, Dtype dtype, Dims shape, const std::string& bytes) {
    tensors.push_back({std::move(name), dtype, std::move(shape), 0, int64_t(data.size()), int64_t(bytes.size())});
    data += bytes;
  }
};

/// Adds `in` and `out` of one packed tensor.
void add_pair(const Tiny& tiny, const Plan& plan, const PackedTensor& t, Device& device, File& file) {
  const auto* base = reinterpret_cast<const uint8_t*>(tiny.data.data());
  Parameter loaded = *t.parameter;  // the original parameter's bias is BF16, whatever the packed dtype
  if (t.part == Part::bias) loaded.dtype = Dtype::BF16;
  PackedTensor raw = t;
  raw.parameter = &loaded;
  const auto read = [&](const Pieces& pieces, uint8_t* to) {
    for (const Piece& p : pieces.list) std::memcpy(to + p.source_at, base + p.range.in_file(), size_t(p.range.bytes));
  };
  std::string in, out(size_t(t.bytes), '\0');
  pack_from(pieces_in(plan, t, 0, experts), read, device, reinterpret_cast<uint8_t*>(out.data()));
  file.put(t.name, t.parameter->dtype, t.shape, out);
  if (t.part == Part::residual) return;
  for (int64_t e = 0; e < experts; ++e) {
    const Expert& expert = tiny.model.layers.front().experts[size_t(e)];
    const uint8_t* from = base + pieces_of(t, expert).front().in_file();
    const uint8_t* source[2] = {from, from};
    in += raw_rows(tiny.model, matrix_of<const uint8_t>(plan, raw, expert, source));
  }
  const Shape padded = plan.padded_shape(t);
  const Dims shape = t.part == Part::bias ? Dims{experts, padded.n} : Dims{experts, padded.n, padded.b};
  file.put(pieces_of(t, tiny.model.layers.front().experts.front()).front().tensor->name,
           t.part == Part::bias ? Dtype::BF16 : Dtype::U8, shape, in);
}

}  // namespace

std::string make_canary(const Model& like, const Backend& backend) {
  const Tiny tiny = make_tiny(like);
  Problems problems;
  const Plan plan = make_plan(tiny.checkpoint, tiny.model, backend, {}, problems);
  problems.throw_if_any();
  const auto cpu = open_cpu();
  File file;
  for (const PackedTensor& t : plan.packed) add_pair(tiny, plan, t, *cpu, file);
  return write_header(file.tensors, {{"format", "pt"}, {"mxfp4_pack", "1"}}, page) + file.data;
}

}  // namespace mxfp4
