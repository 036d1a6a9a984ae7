#include "src/convert/raw_layer.h"

#include <functional>
#include <new>

#include "src/base/error.h"
#include "src/checkpoint/shard_reader.h"
#include "src/device/pipeline.h"
#include "src/packed/checksums.h"
#include "src/packed/packed_checkpoint.h"
#include "src/plan/canonical.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// The shape of one expert's original rows, without pads, in canonical form.
struct RawShape {
  int64_t rows, row_bytes;
  int64_t bytes() const { return rows * row_bytes; }
};

/// Converts canonical rows to the file's form: biases in BF16, scales as E8M0 bytes. False if a value is not a
/// scale's.
bool narrow(const PackedTensor& t, const RawShape& shape, const uint8_t* canonical, uint8_t* to) {
  if (const ScaleValues* values = t.parameter->values)
    return values->narrow(canonical, shape.bytes() / values->width(), to) < 0;
  bias_from_canonical({2, 4}, canonical, shape.rows, to);
  return true;
}

/// A packed tensor and its original form.
struct RawTensor {
  size_t index;  // of Plan::packed
  RawShape shape;
  Tensor stored;  // in the file; its offset is relative to the data
};

std::string raw_name(const PackedTensor& t) {
  return name_of(t.role) + std::string(t.part == Part::codes ? "" : t.part == Part::scales ? "_scale" : "_bias");
}

class RawLayer {
 public:
  RawLayer(const PackedCheckpoint& packed, const LayerOfSet& layer)
      : set_(packed.sets[size_t(layer.set)]), files_(packed.files), reader_(files_), sums_(set_.plan) {
    for (size_t i = 0; i < plan_.packed.size(); ++i) {
      const PackedTensor& t = plan_.packed[i];
      if (t.rank != layer.rank || layer_of(t).module != layer.module) continue;
      tensors_.push_back({i, shape_of(t), stored(t, bytes_)});
      bytes_ += tensors_.back().stored.bytes;
    }
    if (tensors_.empty())
      fail(ErrorKind::usage, "{}: set {} has no layer {} of rank {}", layer.out, layer.set, layer.module, layer.rank);
  }

  RawLayerFile file() {
    const std::string header = header_text();
    RawLayerFile file;
    file.bytes = header.size() + size_t(bytes_);
    file.data.reset(static_cast<char*>(std::calloc(file.bytes, 1)));  // the bias of w2 is zero on ranks above 0
    if (!file.data) throw std::bad_alloc();
    std::ranges::copy(header, file.data.get());
    data_ = reinterpret_cast<uint8_t*>(file.data.get()) + header.size();
    unpack();
    return file;
  }

 private:
  void unpack() {
    const int64_t count = experts(plan_.packed[tensors_.front().index]), jobs = int64_t(tensors_.size()) * count;
    std::vector<std::string> wrong(static_cast<size_t>(jobs));  // of each job; empty: the expert is valid
    run_jobs(jobs, 0, [&](Worker& worker, int64_t i) {
      wrong[size_t(i)] = unpack_expert(worker, tensors_[size_t(i / count)], i % count);
    });
    Problems problems;
    for (const RawTensor& raw : tensors_)
      if (to_hex(hash_of_pieces(sums_.packed[raw.index].slices)) != set_.checksums[raw.index])
        problems.error(files_.where(set_.stored[raw.index]), "does not have the checksum in {}", manifest_name);
    problems.throw_if_any();
    for (int64_t i = 0; i < jobs; ++i)
      if (const RawTensor& raw = tensors_[size_t(i / count)]; !wrong[size_t(i)].empty())
        problems.error(files_.where(set_.stored[raw.index]), "expert {}: {}", i % count, wrong[size_t(i)]);
    problems.throw_if_any();
  }

  std::string header_text() const {
    std::vector<Tensor> stored;
    for (const RawTensor& raw : tensors_) stored.push_back(raw.stored);
    const bool pairs = loaded_order(*plan_.model).block == 1;
    return write_header(stored, {{"format", "pt"}, {"w13_rows", pairs ? "pairs" : "halves"}}, page);
  }

  const MoeLayer& layer_of(const PackedTensor& t) const { return plan_.model->layers[size_t(t.layer)]; }
  int64_t experts(const PackedTensor& t) const { return int64_t(layer_of(t).experts.size()); }

  RawShape shape_of(const PackedTensor& t) const {
    const Shape size = matrix_size(t.role, {layer_of(t).hidden, t.intermediate.count});
    return {size.n, row_bytes(t.part, *t.parameter, size.b)};
  }

  Tensor stored(const PackedTensor& t, int64_t offset) const {
    const bool bias = t.part == Part::bias;
    const RawShape raw = shape_of(t);
    Dims shape = {experts(t), raw.rows};
    if (!bias) shape.push_back(raw.row_bytes / scale_bytes(*t.parameter));
    const Dtype dtype = bias ? Dtype::BF16 : Dtype::U8;
    return {raw_name(t), dtype, shape, 0, offset, tensor_bytes(dtype, shape)};
  }

  /// Unpacks an expert. Returns an error found in its stored bytes, or an empty text.
  std::string unpack_expert(Worker& worker, const RawTensor& raw, int64_t expert) {
    const PackedTensor& t = plan_.packed[raw.index];
    uint8_t* packed = worker.packed.reserve(t.slice_bytes);
    PieceHasher hasher = slice_hasher(plan_, raw.index, expert, expert + 1, sums_);
    reader_.read({&set_.stored[raw.index], expert * t.slice_bytes, t.slice_bytes}, packed, std::ref(hasher));
    const bool other = t.parameter->values || (t.part == Part::bias && t.parameter->dtype == Dtype::F32);
    std::vector<uint8_t> canonical(size_t(other ? raw.shape.bytes() : 0));
    uint8_t* const place = data_ + raw.stored.offset + expert * (raw.stored.bytes / experts(t));
    uint8_t* const rows = other ? canonical.data() : place;
    uint8_t* const pieces[2] = {rows, rows};
    auto m = matrix_of<uint8_t>(plan_, t, layer_of(t).experts[size_t(expert)], pieces);
    const int64_t row = raw.shape.row_bytes;
    const bool pairs = t.role == Role::w13 && loaded_order(*plan_.model).block == 1;
    m.view[0] = {rows, pairs ? 2 * row : row};
    if (t.role == Role::w13) m.view[1] = {rows + (pairs ? 1 : m.real.n) * row, m.view[0].stride};
    const UnpackItem item{t.parameter->layout, packed, m};
    PadReport pads;
    worker.device->unpack({&item, 1}, {&pads, 1});
    if (other && !narrow(t, raw.shape, rows, place)) return "has a value that is not a scale's";
    return pads.copies.wrong ? describe(pads.copies) : "";
  }

  const PackedSet& set_;
  const Plan& plan_ = set_.plan;
  const Checkpoint& files_;
  ShardReader reader_;
  Checksums sums_;
  std::vector<RawTensor> tensors_;
  int64_t bytes_ = 0;        // of all tensors
  uint8_t* data_ = nullptr;  // of the file
};

}  // namespace

RawLayerFile raw_layer(const LayerOfSet& layer) {
  Problems problems;
  const auto packed = open_packed(layer.out, problems);
  problems.throw_if_any();
  if (layer.set < 0 || layer.set >= int(packed->sets.size()))
    fail(ErrorKind::usage, "{}: it has no set {}", layer.out, layer.set);
  if (const Backend& backend = *packed->sets[size_t(layer.set)].plan.backend; backend.rewrite)
    fail(ErrorKind::usage, "{}: {} is lossy: it does not have the original codes and scales", layer.out, backend.name);
  return RawLayer(*packed, layer).file();
}

}  // namespace mxfp4
