#include "src/convert/raw_layer.h"

#include <functional>

#include "src/base/log.h"
#include "src/checkpoint/shard_reader.h"
#include "src/device/pipeline.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/canonical.h"

namespace mxfp4 {

namespace {

/// One expert's raw rows, without pads, in canonical form.
struct RawShape {
  int64_t rows, row_bytes;
  int64_t bytes() const { return rows * row_bytes; }
};

/// A packed tensor and its raw form.
struct RawTensor {
  size_t index;  // in Plan::packed
  RawShape shape;
  std::unique_ptr<uint8_t[]> data;  // zeros where the set holds nothing: a bias that another rank adds
};

std::string raw_name(const PackedTensor& t) {
  return name_of(t.role) + std::string(t.part == Part::codes ? "" : t.part == Part::scales ? "_scale" : "_bias");
}

class RawLayer {
 public:
  RawLayer(const PackedCheckpoint& packed, const RawLayerOptions& options)
      : set_(packed.sets[size_t(options.set)]), files_(packed.files), reader_(files_), sums_(set_.plan) {
    for (size_t i = 0; i < plan_.packed.size(); ++i) {
      const PackedTensor& t = plan_.packed[i];
      if (t.rank != options.rank || layer_of(t).module != options.layer) continue;
      const RawShape shape = shape_of(t);
      tensors_.push_back({i, shape, std::make_unique<uint8_t[]>(size_t(experts(t) * shape.bytes()))});
    }
    if (tensors_.empty())
      fail(ErrorKind::usage, "{}: set {} has no layer {} of rank {}", options.out, options.set, options.layer,
           options.rank);
  }

  void unpack(int threads, const DeviceChoice& devices) {
    const int64_t count = experts(plan_.packed[tensors_.front().index]);
    run_jobs(
        int64_t(tensors_.size()) * count, threads,
        [&](Worker& worker, int64_t i) { unpack_expert(worker, tensors_[size_t(i / count)], i % count); }, devices);
    Problems problems;
    for (const RawTensor& raw : tensors_)
      if (to_hex(hash_of_pieces(sums_.packed[raw.index].slices)) != set_.checksums[raw.index])
        problems.error(files_.where(set_.stored[raw.index]), "does not have the checksum in {}", manifest_name);
    problems.throw_if_any();
    for (RawTensor& raw : tensors_)
      if (const PackedTensor& t = plan_.packed[raw.index]; t.part == Part::bias && t.parameter->dtype == Dtype::F32)
        bias_from_canonical({2, 4}, raw.data.get(), experts(t) * raw.shape.rows, raw.data.get());
  }

  void print() const {
    std::vector<Tensor> stored;
    int64_t end = 0;
    for (const RawTensor& raw : tensors_) {
      const PackedTensor& t = plan_.packed[raw.index];
      const bool bias = t.part == Part::bias;
      Dims shape = {experts(t), raw.shape.rows};
      if (!bias) shape.push_back(raw.shape.row_bytes);
      const int64_t bytes = tensor_bytes(bias ? Dtype::BF16 : Dtype::U8, shape);
      stored.push_back({raw_name(t), bias ? Dtype::BF16 : Dtype::U8, shape, 0, end, bytes});
      end += bytes;
    }
    const bool pairs = loaded_order(*plan_.model).block == 1;
    write_output(write_header(stored, {{"format", "pt"}, {"w13_rows", pairs ? "pairs" : "halves"}}, page));
    for (size_t i = 0; i < tensors_.size(); ++i)
      write_output({reinterpret_cast<const char*>(tensors_[i].data.get()), size_t(stored[i].bytes)});
  }

 private:
  const MoeLayer& layer_of(const PackedTensor& t) const { return plan_.model->layers[size_t(t.layer)]; }
  int64_t experts(const PackedTensor& t) const { return int64_t(layer_of(t).experts.size()); }

  RawShape shape_of(const PackedTensor& t) const {
    const Shape size = matrix_size(t.role, {layer_of(t).hidden, t.intermediate.count});
    return {size.n, row_bytes(t.part, t.parameter->dtype, size.b)};
  }

  void unpack_expert(Worker& worker, RawTensor& raw, int64_t expert) {
    const PackedTensor& t = plan_.packed[raw.index];
    uint8_t* packed = worker.packed.reserve(t.slice_bytes);
    PieceHasher hasher = slice_hasher(plan_, raw.index, expert, expert + 1, sums_);
    reader_.read(set_.stored[raw.index], expert * t.slice_bytes, t.slice_bytes, packed, std::ref(hasher));
    uint8_t* rows = raw.data.get() + expert * raw.shape.bytes();
    uint8_t* const pieces[2] = {rows, rows};
    auto m = matrix_of<uint8_t>(plan_, t, layer_of(t).experts[size_t(expert)], pieces);
    const int64_t row = raw.shape.row_bytes;
    const bool pairs = t.role == Role::w13 && loaded_order(*plan_.model).block == 1;
    m.view[0] = {rows, pairs ? 2 * row : row};
    if (t.role == Role::w13) m.view[1] = {rows + (pairs ? 1 : m.real.n) * row, m.view[0].stride};
    const UnpackItem item{t.parameter->layout, packed, m};
    PadReport pads;
    worker.device->unpack({&item, 1}, {&pads, 1});
  }

  const PackedSet& set_;
  const Plan& plan_ = set_.plan;
  const Checkpoint& files_;
  ShardReader reader_;
  Checksums sums_;
  std::vector<RawTensor> tensors_;
};

}  // namespace

void print_raw_layer(const RawLayerOptions& options) {
  Problems problems;
  const auto packed = open_packed(options.out, problems);
  problems.throw_if_any();
  if (options.set < 0 || options.set >= int(packed->sets.size()))
    fail(ErrorKind::usage, "{}: it has no set {}", options.out, options.set);
  if (const Backend& backend = *packed->sets[size_t(options.set)].plan.backend; backend.rewrite)
    fail(ErrorKind::usage, "{}: {} is lossy: the raw codes and scales are not in it", options.out, backend.name);
  RawLayer layer(*packed, options);
  layer.unpack(options.threads, choose_device(options.device));
  layer.print();
}

}  // namespace mxfp4
