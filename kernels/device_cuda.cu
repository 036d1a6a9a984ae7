// A CUDA GPU: chunks of items over three streams, so that copies to the device, kernels and copies back overlap.
// They overlap only for memory from allocate(); any other host memory works, at the driver's pace.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"

namespace mxfp4 {
namespace {

constexpr int64_t default_memory = int64_t(192) << 20, alignment = 256;

/// A copy of `rows` rows of `width` bytes between host and device.
struct Transfer {
  uint8_t* host;
  int64_t host_stride;
  uint8_t* device;
  int64_t stride, width, rows;
};

void copy(const Transfer& t, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_device = kind == cudaMemcpyHostToDevice;
  uint8_t *const to = to_device ? t.device : t.host, *const from = to_device ? t.host : t.device;
  if (t.rows == 1)
    MXFP4_CUDA(cudaMemcpyAsync(to, from, t.width, kind, stream));
  else
    MXFP4_CUDA(cudaMemcpy2DAsync(to, to_device ? t.stride : t.host_stride, from, to_device ? t.host_stride : t.stride,
                                 t.width, t.rows, kind, stream));
}

/// A matrix' real rows in device memory: one image of the host's bytes where they have no gaps, else dense rows.
struct Placed {
  MutableMatrix matrix;
  Transfer transfers[2];
  int count = 0;
  int64_t bytes = 0;
};

template <class T>
Placed place(const BasicMatrix<T>& m, uint8_t* device) {
  Placed placed{{{}, m.views, m.real, m.padded, m.order, m.pad, m.add}, {}};
  const int64_t rows = m.real.n, width = m.real.b;
  if (rows * width == 0) return placed;
  uint8_t* host[2] = {};
  for (int v = 0; v < m.views; ++v) host[v] = const_cast<uint8_t*>(m.view[v].data);
  uint8_t *begin = host[0], *end = host[0];
  for (int v = 0; v < m.views; ++v) {
    begin = std::min(begin, host[v]);
    end = std::max(end, host[v] + (rows - 1) * m.view[v].stride + width);
  }
  if (end - begin == m.views * rows * width) {
    for (int v = 0; v < m.views; ++v) placed.matrix.view[v] = {device + (host[v] - begin), m.view[v].stride};
    placed.transfers[placed.count++] = {begin, 0, device, 0, end - begin, 1};
    placed.bytes = round_up(end - begin, alignment);
  } else {
    const int64_t stride = round_up(width, 16);
    for (int v = 0; v < m.views; ++v) {
      uint8_t* const to = device + placed.bytes;
      placed.matrix.view[v] = {to, stride};
      placed.transfers[placed.count++] = {host[v], m.view[v].stride, to, stride, width, rows};
      placed.bytes += round_up(rows * stride, alignment);
    }
  }
  return placed;
}

Matrix read_only(const MutableMatrix& m) {
  Matrix r{{}, m.views, m.real, m.padded, m.order, m.pad, m.add};
  for (int v = 0; v < m.views; ++v) r.view[v] = {m.view[v].data, m.view[v].stride};
  return r;
}

/// A stream and the device memory that its chunks use in turn.
struct Slot {
  cudaStream_t stream = nullptr;
  uint8_t* memory = nullptr;
  int64_t bytes = 0;
};

class Cuda final : public Device {
 public:
  Cuda(int index, int64_t memory) : index_(index), memory_(memory > 0 ? memory : default_memory) {
    use();
    cudaDeviceProp properties;
    MXFP4_CUDA(cudaGetDeviceProperties(&properties, index_));
    name_ = "cuda:" + std::to_string(index_) + " (" + properties.name + ")";
    for (Slot& slot : slots_) MXFP4_CUDA(cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking));
  }
  ~Cuda() override {
    cudaSetDevice(index_);
    for (Slot& slot : slots_) {
      cudaStreamSynchronize(slot.stream);
      cudaFree(slot.memory);
      cudaStreamDestroy(slot.stream);
    }
    cudaFree(found_);
  }
  std::string name() const override { return name_; }

  uint8_t* allocate(int64_t bytes) override {
    use();
    void* memory = nullptr;
    MXFP4_CUDA(cudaHostAlloc(&memory, size_t(round_up(std::max<int64_t>(bytes, 1), 4096)), cudaHostAllocPortable));
    return static_cast<uint8_t*>(memory);
  }
  void release(uint8_t* memory) override { MXFP4_CUDA(cudaFreeHost(memory)); }

  void pack(std::span<const PackItem> items) override {
    run(items, [](std::span<const PackItem> chunk, size_t, const Slot& slot) {
      std::vector<PackItem> on_device;
      uint8_t* next = slot.memory;
      for (const PackItem& item : chunk) {
        const Placed placed = place(item.matrix, next);
        for (int i = 0; i < placed.count; ++i) copy(placed.transfers[i], cudaMemcpyHostToDevice, slot.stream);
        on_device.push_back({item.layout, read_only(placed.matrix), next + placed.bytes});
        next += bytes_of(item);
      }
      launch_pack(on_device, slot.stream);
      for (size_t i = 0; i < chunk.size(); ++i)
        copy({chunk[i].packed, 0, on_device[i].packed, 0, packed_size(chunk[i]), 1}, cudaMemcpyDeviceToHost,
             slot.stream);
    });
  }

  void unpack(std::span<const UnpackItem> items, std::span<PadReport> reports) override {
    use();
    std::vector<PadFound> found(items.size());
    reserve_found(items.size());
    run(items, [this](std::span<const UnpackItem> chunk, size_t first, const Slot& slot) {
      std::vector<UnpackItem> on_device;
      std::vector<Placed> all_placed;
      uint8_t* next = slot.memory;
      for (const UnpackItem& item : chunk) {
        all_placed.push_back(place(item.matrix, next));
        uint8_t* const packed = next + all_placed.back().bytes;
        copy({const_cast<uint8_t*>(item.packed), 0, packed, 0, packed_size(item), 1}, cudaMemcpyHostToDevice,
             slot.stream);
        on_device.push_back({item.layout, packed, all_placed.back().matrix});
        next += bytes_of(item);
      }
      MXFP4_CUDA(cudaMemsetAsync(found_ + first, 0, chunk.size() * sizeof(PadFound), slot.stream));
      launch_unpack(on_device, found_ + first, slot.stream);
      for (const Placed& placed : all_placed)
        for (int i = 0; i < placed.count; ++i) copy(placed.transfers[i], cudaMemcpyDeviceToHost, slot.stream);
    });
    if (items.empty()) return;
    MXFP4_CUDA(cudaMemcpy(found.data(), found_, found.size() * sizeof(PadFound), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < items.size(); ++i) reports[i] = pad_report(found[i], items[i]);
  }

 private:
  void use() const { MXFP4_CUDA(cudaSetDevice(index_)); }

  template <class Item>
  static int64_t packed_size(const Item& item) {
    return packed_bytes(item.layout, item.matrix.padded);
  }
  template <class Item>
  static int64_t bytes_of(const Item& item) {
    return place(item.matrix, nullptr).bytes + round_up(packed_size(item), alignment);
  }

  /// Call chunk(items, index of the first, slot) for runs of items that fit a slot, and wait for all of them.
  /// Where device memory is short, runs become shorter, then slots fewer, before it is an error.
  template <class Item, class Chunk>
  void run(std::span<const Item> items, Chunk chunk) {
    use();
    for (size_t first = 0, turn = 0; first < items.size();) {
      const int64_t capacity = std::min(memory_, limit_) / slots_used_;
      int64_t bytes = bytes_of(items[first]);
      size_t count = 1;
      for (; first + count < items.size(); ++count) {
        const int64_t more = bytes + bytes_of(items[first + count]);
        if (more > capacity) break;
        bytes = more;
      }
      Slot& slot = slots_[turn++ % slots_used_];
      if (reserve(slot, bytes)) {
        chunk(items.subspan(first, count), first, slot);
        first += count;
      } else {
        shrink(bytes, count);
      }
    }
    wait();
  }

  void wait() {
    for (Slot& slot : slots_) MXFP4_CUDA(cudaStreamSynchronize(slot.stream));
  }

  static bool reserve(Slot& slot, int64_t bytes) {
    if (bytes <= slot.bytes) return true;
    free_memory(slot);
    const cudaError_t error = cudaMalloc(&slot.memory, size_t(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is handled: leave no error behind
      return false;
    }
    check_device(error, "cudaMalloc");
    slot.bytes = bytes;
    return true;
  }
  static void free_memory(Slot& slot) {
    MXFP4_CUDA(cudaStreamSynchronize(slot.stream));
    MXFP4_CUDA(cudaFree(slot.memory));
    slot.memory = nullptr, slot.bytes = 0;
  }

  void shrink(int64_t bytes, size_t count) {
    for (Slot& slot : slots_) free_memory(slot);
    if (count > 1)
      limit_ = bytes / 2 * int64_t(slots_used_);
    else if (slots_used_ > 1)
      slots_used_ = 1;
    else
      throw DeviceError(name_ + ": cudaMalloc of " + std::to_string(bytes) +
                        " bytes, one matrix in and out: " + cudaGetErrorString(cudaErrorMemoryAllocation));
  }

  void reserve_found(size_t items) {
    if (items <= found_items_) return;
    MXFP4_CUDA(cudaFree(found_));
    found_ = nullptr, found_items_ = 0;
    MXFP4_CUDA(cudaMalloc(&found_, items * sizeof(PadFound)));
    found_items_ = items;
  }

  int index_;
  int64_t memory_, limit_ = INT64_MAX;  // limit_: what the GPU was found to have
  std::string name_;
  std::array<Slot, 3> slots_;
  size_t slots_used_ = 3;
  PadFound* found_ = nullptr;
  size_t found_items_ = 0;
};

/// The number of devices, or why there is none.
int count_devices(std::string& why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  int driver = 0;
  const bool found = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  if (!found)
    why = "no CUDA driver found";
  else if (error == cudaSuccess || error == cudaErrorNoDevice)
    why = "no CUDA device found";
  else
    why = std::string("cudaGetDeviceCount: ") + cudaGetErrorString(error);
  return 0;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

int cuda_device_count() {
  std::string why;
  return count_devices(why);
}

std::string cuda_description() {
  std::string text;
  const int count = count_devices(text);
  if (count == 0) return text;
  text = "CUDA " + version_text(CUDART_VERSION);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    MXFP4_CUDA(cudaGetDeviceProperties(&properties, i));
    text += (i ? ", " : "; ") + ("cuda:" + std::to_string(i)) + " " + properties.name;
  }
  return text;
}

std::unique_ptr<Device> open_cuda(int index, int64_t device_memory) {
  std::string why;
  const int count = count_devices(why);
  if (count == 0) throw DeviceError(why);
  if (index < 0 || index >= count)
    throw DeviceError("cuda:" + std::to_string(index) +
                      ": there is no such device; the last is cuda:" + std::to_string(count - 1));
  return std::make_unique<Cuda>(index, device_memory);
}

}  // namespace mxfp4
