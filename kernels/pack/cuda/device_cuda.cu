// A CUDA GPU: chunks of items over three streams, so that copies to the device, kernels and copies back overlap.
// They overlap only for memory from allocate(); any other host memory works, at the driver's pace.
#include <array>
#include <vector>

#include "kernels/pack/cuda/checksum_requests.h"
#include "kernels/pack/cuda/gpu_memory.h"
#include "kernels/pack/cuda/launch.h"
#include "kernels/pack/cuda/upload_plan.h"

namespace mxfp4 {
namespace {

constexpr int64_t default_memory = int64_t(192) << 20;

/// A stream, and the device memory that its chunks share one after the other.
struct Slot {
  cudaStream_t stream = nullptr;
  uint8_t* memory = nullptr;
  int64_t bytes = 0;
};

class Cuda final : public Device {
 public:
  Cuda(int index, int64_t memory)
      : index_(index), memory_(memory > 0 ? memory : default_memory), gpu_(GpuMemory::of(index)) {
    // The cores have other work than waiting. cudaSetDevice() would open the GPU without the flag.
    MXFP4_CUDA(cudaInitDevice(index_, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid));
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
      gpu_.free(slot.memory);
      cudaStreamDestroy(slot.stream);
    }
    cudaFree(answers_);
    cudaFreeHost(host_answers_);
  }
  std::string name() const override { return name_; }

  uint8_t* allocate(int64_t bytes) override {
    use();
    void* memory = nullptr;
    MXFP4_CUDA(cudaHostAlloc(&memory, size_t(round_up(std::max<int64_t>(bytes, 1), 4096)), cudaHostAllocPortable));
    return static_cast<uint8_t*>(memory);
  }
  void release(uint8_t* memory) override { MXFP4_CUDA(cudaFreeHost(memory)); }

  bool makes_checksums() const override { return true; }

  /// A chunk's memory has the rows and the packed matrix of each item, then the data of its checksums.
  void pack(std::span<const PackItem> items, std::span<Checksum> sums) override {
    Xxh128* const made = host_answers(sums.size());
    ChecksumRequests wanted(sums, made);
    const auto size_of = [&](const PackItem& item) {
      const int64_t bytes = bytes_of(item, 1);
      return bytes + (sums.empty() ? 0 : round_up(xxh_scratch(bytes), device_alignment));
    };
    run(items, size_of, [&](std::span<const PackItem> chunk, size_t, const Slot& slot) {
      std::vector<PackItem> on_device;
      std::vector<XxhItem> hashed;
      uint8_t* next = slot.memory;
      for (const PackItem& item : chunk) {
        const UploadPlan placed = plan_upload(item.matrix, next);
        upload(placed, slot.stream);
        on_device.push_back({item.layout, read_only(placed.matrix), next + placed.bytes});
        for (const Transfer& t : std::span(placed.transfers, size_t(placed.count)))
          if (t.rows == 1) wanted.find(t.host, t.device, t.width, hashed);
        wanted.find(item.packed, on_device.back().packed, packed_size(item), hashed);
        next += bytes_of(item, 1);
      }
      launch_pack(on_device, plans_, slot.stream);
      launch_xxh3(hashed, next, slot.stream);
      for (size_t i = 0; i < chunk.size(); ++i)
        copy({chunk[i].packed, 0, on_device[i].packed, 0, packed_size(chunk[i]), 1}, cudaMemcpyDeviceToHost,
             slot.stream);
    });
    for (size_t i = 0; i < sums.size(); ++i)
      if (sums[i].done) sums[i].low = made[i].low, sums[i].high = made[i].high;
  }

  void unpack(std::span<const UnpackItem> items, std::span<PadReport> reports) override {
    const size_t n = items.size();
    PadFound* const answer = zeros<PadFound>(2 * n);
    const auto size_of = [](const UnpackItem& item) { return bytes_of(item, 1); };
    run(items, size_of, [&](std::span<const UnpackItem> chunk, size_t first, const Slot& slot) {
      std::vector<UnpackItem> on_device;
      std::vector<UploadPlan> all_placed;
      uint8_t* next = slot.memory;
      for (const UnpackItem& item : chunk) {
        all_placed.push_back(plan_upload(item.matrix, next));
        on_device.push_back({item.layout, next + all_placed.back().bytes, all_placed.back().matrix});
        upload_packed(item, on_device.back().packed, slot.stream);
        next += bytes_of(item, 1);
      }
      launch_unpack(on_device, plans_, answer + 2 * first, slot.stream);
      for (const UploadPlan& placed : all_placed)
        for (int i = 0; i < placed.count; ++i) copy(placed.transfers[i], cudaMemcpyDeviceToHost, slot.stream);
    });
    const auto found = answers_by_now<PadFound>(2 * n);
    for (size_t i = 0; i < n; ++i) reports[i] = pad_report(found[2 * i], found[2 * i + 1], stored_row(items[i]));
  }

  /// A chunk's memory has the expected rows, the unpacked rows, and the packed matrices.
  void compare(std::span<const CompareItem> items, std::span<CompareReport> reports) override {
    const size_t n = items.size();
    PadFound* const answer = zeros<PadFound>(4 * n);  // two of each for pads and copies, then two for its views
    const auto size_of = [](const CompareItem& item) { return bytes_of(item, 2); };
    run(items, size_of, [&](std::span<const CompareItem> chunk, size_t first, const Slot& slot) {
      int64_t expected = 0;
      for (const CompareItem& item : chunk) {
        if (item.fetch) item.fetch(0, item.matrix.real.n);
        expected += plan_upload(item.matrix, nullptr).bytes;
      }
      std::vector<UnpackItem> on_device;
      uint8_t *next = slot.memory, *packed = slot.memory + 2 * expected;
      for (const CompareItem& item : chunk) {
        const UploadPlan placed = plan_upload(item.matrix, next);
        upload(placed, slot.stream);
        upload_packed(item, packed, slot.stream);
        on_device.push_back({item.layout, packed, plan_upload(item.matrix, next + expected).matrix});
        next += placed.bytes;
        packed += round_up(packed_size(item), device_alignment);
      }
      launch_unpack(on_device, plans_, answer + 2 * first, slot.stream);
      launch_compare(on_device, -expected, answer + 2 * (n + first), slot.stream);
    });
    const auto found = answers_by_now<PadFound>(4 * n);
    for (size_t i = 0; i < n; ++i) {
      reports[i].pads = pad_report(found[2 * i], found[2 * i + 1], stored_row(items[i]));
      for (int v = 0; v < 2; ++v)
        reports[i].view[v] = view_report(found[2 * (n + i) + size_t(v)], items[i].matrix.real.b);
    }
  }

 private:
  void use() const { MXFP4_CUDA(cudaSetDevice(index_)); }

  template <class Item>
  static int64_t packed_size(const Item& item) {
    return packed_bytes(item.layout, item.matrix.padded);
  }
  /// Bytes of a row of the packed matrix' storage.
  template <class Item>
  static int64_t stored_row(const Item& item) {
    return storage_of(item.layout, item.matrix.padded).b;
  }
  /// images: the number of copies of the rows in device memory, in addition to the packed matrix.
  template <class Item>
  static int64_t bytes_of(const Item& item, int images) {
    return images * plan_upload(item.matrix, nullptr).bytes + round_up(packed_size(item), device_alignment);
  }

  static void upload(const UploadPlan& placed, cudaStream_t stream) {
    for (int i = 0; i < placed.count; ++i) copy(placed.transfers[i], cudaMemcpyHostToDevice, stream);
  }
  template <class Item>
  static void upload_packed(const Item& item, const uint8_t* to, cudaStream_t stream) {
    copy({const_cast<uint8_t*>(item.packed), 0, const_cast<uint8_t*>(to), 0, packed_size(item), 1},
         cudaMemcpyHostToDevice, stream);
  }

  /// Calls chunk(items, index of the first, slot) for runs of items that fit a slot, and waits for all of them. It
  /// waits even if an error is thrown, because the memory is the caller's. size_of(item): bytes of a slot that the item
  /// needs. If device memory is short, runs become shorter and then slots fewer. Next, the call waits for other
  /// Devices; only then is the shortage an error.
  template <class Item, class Size, class Chunk>
  void run(std::span<const Item> items, Size size_of, Chunk chunk) {
    use();
    try {
      run_chunks(items, size_of, chunk);
    } catch (...) {
      for (Slot& slot : slots_) cudaStreamSynchronize(slot.stream);
      throw;
    }
    if (gpu_.is_short())
      for (Slot& slot : slots_) free_memory(slot);
  }

  template <class Item, class Size, class Chunk>
  void run_chunks(std::span<const Item> items, Size size_of, Chunk chunk) {
    size_t turn = 0;
    for (size_t first = 0; first < items.size();) {
      const int64_t capacity = std::min(memory_, limit_) / slots_used_;
      int64_t bytes = size_of(items[first]);
      size_t count = 1;
      for (; first + count < items.size(); ++count) {
        const int64_t more = bytes + size_of(items[first + count]);
        if (more > capacity) break;
        bytes = more;
      }
      Slot& slot = slots_[turn++ % slots_used_];
      const int64_t frees = gpu_.frees();
      if (reserve(slot, bytes)) {
        chunk(items.subspan(first, count), first, slot);
        first += count;
      } else {
        shrink(bytes, count, frees);
      }
    }
    for (size_t i = 0; i < std::min(turn, slots_.size()); ++i) MXFP4_CUDA(cudaStreamSynchronize(slots_[i].stream));
  }

  bool reserve(Slot& slot, int64_t bytes) {
    if (bytes <= slot.bytes) return true;
    free_memory(slot);
    slot.memory = gpu_.allocate(bytes);
    if (!slot.memory) return false;
    slot.bytes = bytes;
    return true;
  }
  void free_memory(Slot& slot) {
    MXFP4_CUDA(cudaStreamSynchronize(slot.stream));
    gpu_.free(slot.memory);
    slot.memory = nullptr;
    slot.bytes = 0;
  }

  /// Frees memory after an allocation of `bytes` failed, and reduces the limits. frees: the number of frees on the GPU
  /// before that allocation.
  void shrink(int64_t bytes, size_t count, int64_t frees) {
    for (Slot& slot : slots_) free_memory(slot);
    if (count > 1)
      limit_ = bytes / 2 * int64_t(slots_used_);
    else if (slots_used_ > 1)
      slots_used_ = 1;
    else if (!gpu_.wait_for_free(frees))
      throw DeviceError(name_ + ": cudaMalloc of " + std::to_string(bytes) +
                        " bytes, one matrix in and out: " + cudaGetErrorString(cudaErrorMemoryAllocation));
  }

  /// Page-locked memory to which kernels write a call's checksums. They are complete when the call's streams are done.
  Xxh128* host_answers(size_t count) {
    if (count > host_answers_size_) {
      use();
      MXFP4_CUDA(cudaFreeHost(host_answers_));
      host_answers_ = nullptr;
      host_answers_size_ = 0;
      MXFP4_CUDA(cudaHostAlloc(&host_answers_, count * sizeof(Xxh128), cudaHostAllocPortable | cudaHostAllocMapped));
      host_answers_size_ = count;
    }
    return host_answers_;
  }

  /// Device memory for the answers of one call.
  template <class Answer>
  Answer* answers(size_t count) {
    use();
    const size_t bytes = count * sizeof(Answer);
    if (bytes > answer_bytes_) {
      MXFP4_CUDA(cudaFree(answers_));
      answers_ = nullptr;
      answer_bytes_ = 0;
      MXFP4_CUDA(cudaMalloc(&answers_, bytes));
      answer_bytes_ = bytes;
    }
    return static_cast<Answer*>(answers_);
  }
  template <class Answer>
  Answer* zeros(size_t count) {
    Answer* const all = answers<Answer>(count);
    if (count > 0) MXFP4_CUDA(cudaMemsetAsync(all, 0, count * sizeof(Answer), slots_[0].stream));
    MXFP4_CUDA(cudaStreamSynchronize(slots_[0].stream));
    return all;
  }
  template <class Answer>
  std::vector<Answer> answers_by_now(size_t count) {
    std::vector<Answer> all(count);
    if (count == 0) return all;
    MXFP4_CUDA(cudaMemcpyAsync(all.data(), answers_, count * sizeof(Answer), cudaMemcpyDeviceToHost, slots_[0].stream));
    MXFP4_CUDA(cudaStreamSynchronize(slots_[0].stream));
    return all;
  }

  int index_;
  int64_t memory_, limit_ = INT64_MAX;  // limit_: the memory that the GPU turned out to have
  GpuMemory& gpu_;
  Plans plans_;
  std::string name_;
  std::array<Slot, 3> slots_;
  size_t slots_used_ = 3;
  void* answers_ = nullptr;
  size_t answer_bytes_ = 0;
  Xxh128* host_answers_ = nullptr;
  size_t host_answers_size_ = 0;
};

/// The number of devices. If it is 0, `why` has the reason.
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

bool built_with_cuda() { return true; }

std::string cuda_description() {
  std::string why, text = "CUDA " + version_text(CUDART_VERSION);
  const int count = count_devices(why);
  if (count == 0) return text + "; " + why;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    MXFP4_CUDA(cudaGetDeviceProperties(&properties, i));
    text += (i ? ", " : "; ") + ("cuda:" + std::to_string(i)) + " " + properties.name;
  }
  return text;
}

std::string cuda_missing() {
  std::string why;
  count_devices(why);
  return why;
}

void select_cuda(int index) { MXFP4_CUDA(cudaSetDevice(index)); }

void check_cuda(int index) {
  std::string why;
  const int count = count_devices(why);
  if (count == 0) throw DeviceError("cuda:" + std::to_string(index) + ": " + why);
  if (index < 0 || index >= count)
    throw DeviceError("cuda:" + std::to_string(index) +
                      ": there is no such device; the last is cuda:" + std::to_string(count - 1));
}

std::unique_ptr<Device> open_cuda(int index, int64_t device_memory) {
  check_cuda(index);
  return std::make_unique<Cuda>(index, device_memory);
}

}  // namespace mxfp4
