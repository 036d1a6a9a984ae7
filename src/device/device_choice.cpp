#include "src/device/device_choice.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include "src/base/error.h"
#include "src/base/log.h"

namespace mxfp4 {

namespace {

// More wait for each other, in the driver or for main memory; cores that are left pack from their caches.
constexpr int workers_per_gpu = 8;
// One expert's matrix of every known model, in and out.
constexpr int64_t worker_memory = int64_t(64) << 20;

/// The numbers in "cuda:0,2"; "cuda" is the first.
std::vector<int> gpus_in(const std::string& name) {
  std::vector<int> gpus;
  const auto refuse = [&] {
    fail(ErrorKind::usage, "--device {}: auto, cpu, cuda, cuda:N or cuda:N,M,.. expected", name);
  };
  if (name == "cuda") return {0};
  if (!name.starts_with("cuda:")) refuse();
  for (const char *at = name.data() + 4, *end = name.data() + name.size(); at < end;) {
    int gpu = 0;
    const auto [stop, error] = std::from_chars(at + 1, end, gpu);
    if (error != std::errc() || gpu < 0 || (stop < end && *stop != ',')) refuse();
    if (std::count(gpus.begin(), gpus.end(), gpu))
      fail(ErrorKind::usage, "--device {}: cuda:{} is there twice", name, gpu);
    gpus.push_back(gpu);
    at = stop;
  }
  return gpus;
}

void note_once(const DeviceError& e) {
  static std::once_flag said;
  const auto say = ::access("/dev/nvidiactl", F_OK) == 0 ? note : note_detail;  // no news where there is no GPU
  std::call_once(said, [&] { say(fmt::format("--device auto: the CPU; {}", e.what())); });
}

}  // namespace

DeviceChoice choose_device(const DeviceOptions& options) {
  if (options.name == "cpu" && options.memory > 0)
    note("--device-memory: of GPUs; with --device cpu it changes nothing");
  if (options.name == "cpu") return {};
  if (options.name != "auto") {
    const DeviceChoice choice{gpus_in(options.name), options.memory};
    for (const int gpu : choice.gpus) check_cuda(gpu);
    return choice;
  }
  if (!built_with_cuda()) return {};
  try {
    check_cuda(0);
    return {{0}, options.memory, true};
  } catch (const DeviceError& e) {
    note_once(e);
    return {};
  }
}

int gpu_workers(const DeviceChoice& choice, int workers) {
  const auto gpus = int(choice.gpus.size());
  const int most = std::min(workers, workers_per_gpu * gpus);
  if (choice.memory == 0 || most == 0) return most;
  return std::min(most, gpus * int(std::clamp<int64_t>(choice.memory / worker_memory, 1, most)));
}

std::unique_ptr<Device> open_device(const DeviceChoice& choice, int index, int workers) {
  const int with_gpu = gpu_workers(choice, workers);
  if (index >= with_gpu) return open_cpu();
  const auto gpus = int(choice.gpus.size());
  try {
    return open_cuda(choice.gpus[size_t(index % gpus)], choice.memory / ((with_gpu + gpus - 1) / gpus));
  } catch (const DeviceError& e) {
    if (!choice.automatic) throw;
    note_once(e);
    return open_cpu();
  }
}

}  // namespace mxfp4
