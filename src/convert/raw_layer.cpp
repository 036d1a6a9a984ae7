#include "src/convert/raw_layer.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "src/base/error.h"
#include "src/base/log.h"
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

/// Converts canonical rows to the printed form: biases in BF16, scales as E8M0 bytes. False if a value is not a
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
  Tensor printed;  // its offset is relative to the data
};

/// A buffer of zeros, which is overwritten with the printed file. If stdout is an empty memfd, as the loaders' is, the
/// buffer maps its pages, so no thread copies the data. Without keep() the memfd is emptied again.
class PrintedFile {
 public:
  explicit PrintedFile(int64_t bytes) : bytes_(size_t(bytes)), shared_(is_empty_memfd()) {
    const int flags = shared_ ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    map_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, shared_ ? STDOUT_FILENO : -1, 0);
    if (map_ == MAP_FAILED || (shared_ && ::ftruncate(STDOUT_FILENO, bytes) != 0)) fail_errno("stdout", "map", errno);
  }
  PrintedFile(const PrintedFile&) = delete;
  ~PrintedFile() {
    ::munmap(map_, bytes_);
    if (shared_ && !kept_) (void)!::ftruncate(STDOUT_FILENO, 0);
  }
  uint8_t* data() const { return static_cast<uint8_t*>(map_); }
  void keep() {
    kept_ = true;
    if (!shared_) write_output({static_cast<const char*>(map_), bytes_});
  }

 private:
  static bool is_empty_memfd() {
    char target[16];
    constexpr std::string_view name = "/memfd:";
    const ssize_t size = ::readlink("/proc/self/fd/1", target, sizeof target);
    struct stat stat;
    return std::string_view(target, size_t(std::max<ssize_t>(size, 0))).starts_with(name) &&
           ::fstat(STDOUT_FILENO, &stat) == 0 && stat.st_size == 0;
  }
  size_t bytes_;
  bool shared_, kept_ = false;
  void* map_;
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
      tensors_.push_back({i, shape_of(t), printed(t, bytes_)});
      bytes_ += tensors_.back().printed.bytes;
    }
    if (tensors_.empty())
      fail(ErrorKind::usage, "{}: set {} has no layer {} of rank {}", options.out, options.set, options.layer,
           options.rank);
  }

  void print(int threads, const DeviceChoice& devices) {
    const std::string header = header_text();
    PrintedFile file(int64_t(header.size()) + bytes_);
    std::ranges::copy(header, file.data());
    data_ = file.data() + header.size();
    unpack(threads, devices);
    file.keep();
  }

 private:
  void unpack(int threads, const DeviceChoice& devices) {
    const int64_t count = experts(plan_.packed[tensors_.front().index]), jobs = int64_t(tensors_.size()) * count;
    std::vector<std::string> wrong(static_cast<size_t>(jobs));  // of each job; empty: the expert is valid
    run_jobs(
        jobs, threads,
        [&](Worker& worker, int64_t i) {
          wrong[size_t(i)] = unpack_expert(worker, tensors_[size_t(i / count)], i % count);
        },
        devices);
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
    for (const RawTensor& raw : tensors_) stored.push_back(raw.printed);
    const bool pairs = loaded_order(*plan_.model).block == 1;
    return write_header(stored, {{"format", "pt"}, {"w13_rows", pairs ? "pairs" : "halves"}}, page);
  }

  const MoeLayer& layer_of(const PackedTensor& t) const { return plan_.model->layers[size_t(t.layer)]; }
  int64_t experts(const PackedTensor& t) const { return int64_t(layer_of(t).experts.size()); }

  RawShape shape_of(const PackedTensor& t) const {
    const Shape size = matrix_size(t.role, {layer_of(t).hidden, t.intermediate.count});
    return {size.n, row_bytes(t.part, *t.parameter, size.b)};
  }

  Tensor printed(const PackedTensor& t, int64_t offset) const {
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
    uint8_t* const place = data_ + raw.printed.offset + expert * (raw.printed.bytes / experts(t));
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
  uint8_t* data_ = nullptr;  // of the printed file
};

}  // namespace

void print_raw_layer(const RawLayerOptions& options) {
  Problems problems;
  const auto packed = open_packed(options.out, problems);
  problems.throw_if_any();
  if (options.set < 0 || options.set >= int(packed->sets.size()))
    fail(ErrorKind::usage, "{}: it has no set {}", options.out, options.set);
  if (const Backend& backend = *packed->sets[size_t(options.set)].plan.backend; backend.rewrite)
    fail(ErrorKind::usage, "{}: {} is lossy: it does not have the original codes and scales", options.out,
         backend.name);
  RawLayer(*packed, options).print(options.threads, choose_device(options.device));
}

}  // namespace mxfp4
