#include "src/device/device_choice.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/threads.h"

namespace mxfp4 {

namespace {

// More wait for each other, in the driver or for main memory; cores that are left pack from their caches.
constexpr int workers_per_gpu = 8;

// Measured on a machine with an H200, 10 GB from the page cache to tmpfs (tests/bench/results/2026-11-23-h200.md): with
// four threads and more, the CPU packs as fast as the GPU. Both reach the speed of a disk. For unpacking the CPU is
// faster with any number of threads.
constexpr int enough_threads = 4;
// To find, open and leave a GPU takes 0.4 s.
constexpr int64_t least_work = int64_t(1) << 30;

/// Prints the note only once, and only with -v if there is no GPU.
void note_once(const std::string& why) {
  static std::once_flag said;
  const auto say = ::access("/dev/nvidiactl", F_OK) == 0 ? note : note_detail;
  std::call_once(said, [&] { say(fmt::format("--device auto: the CPU; {}", why)); });
}

}  // namespace

std::vector<int> gpus_in(const std::string& name) {
  std::vector<int> gpus;
  const auto refuse = [&] {
    fail(ErrorKind::usage, "no device '{}': auto, cpu, cuda, cuda:N or cuda:N,M,.. expected", name);
  };
  if (name == "auto" || name == "cpu") return {};
  if (name == "cuda") return {0};
  if (!name.starts_with("cuda:")) refuse();
  for (const char *at = name.data() + 4, *end = name.data() + name.size(); at < end;) {
    int gpu = 0;
    const auto [stop, error] = std::from_chars(at + 1, end, gpu);
    if (error != std::errc() || gpu < 0 || (stop < end && *stop != ',')) refuse();
    if (std::count(gpus.begin(), gpus.end(), gpu))
      fail(ErrorKind::usage, "no device '{}': cuda:{} is listed twice", name, gpu);
    gpus.push_back(gpu);
    at = stop;
  }
  return gpus;
}

std::string why_cpu(const PackingWork& work) {
  if (work.unpacks) return "it unpacks no slower than a GPU";
  if (const int threads = thread_count(work.threads); threads >= enough_threads)
    return fmt::format("{} threads of it are no slower than a GPU", threads);
  if (work.bytes < least_work) return "a GPU does not pay for less than a GiB";
  return "";
}

std::string name_of(const DeviceChoice& choice) {
  return choice.gpus.empty() ? "cpu" : fmt::format("cuda:{}", fmt::join(choice.gpus, ","));
}

DeviceChoice choose_device(const DeviceOptions& options, const std::optional<PackingWork>& work) {
  const auto cpu = [](std::string why) { return DeviceChoice{.gpus = {}, .why = std::move(why)}; };
  if (options.name == "cpu") return cpu("asked for");
  if (options.name != "auto") {
    const DeviceChoice choice{.gpus = gpus_in(options.name), .why = "asked for"};
    for (const int gpu : choice.gpus) check_cuda(gpu);
    return choice;
  }
  if (!built_with_cuda()) return cpu("built without CUDA");
  if (const std::string why = work ? why_cpu(*work) : ""; !why.empty()) {
    note_once(why);
    return cpu(why);
  }
  try {
    check_cuda(0);
    return {.gpus = {0}, .automatic = true, .why = "sooner done than by the CPU"};
  } catch (const DeviceError& e) {
    note_once(e.what());
    return cpu(e.what());
  }
}

int gpu_workers(const DeviceChoice& choice, int workers) {
  return std::min(workers, workers_per_gpu * int(choice.gpus.size()));
}

std::unique_ptr<Device> open_device(const DeviceChoice& choice, int index, int workers) {
  if (index >= gpu_workers(choice, workers)) return open_cpu();
  try {
    return open_cuda(choice.gpus[size_t(index) % choice.gpus.size()]);
  } catch (const DeviceError& e) {
    if (!choice.automatic) throw;
    note_once(e.what());
    return open_cpu();
  }
}

}  // namespace mxfp4
