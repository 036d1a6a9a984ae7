#include "src/verify/request.h"

#include <filesystem>

#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace fs = std::filesystem;

Level level_of(const VerifyOptions& options, const PackedSet& set) {
  const Backend& backend = *set.plan.backend;
  if (options.level == Level::kernels && options.source.empty())
    fail(ErrorKind::usage, "--level kernels compares with the checkpoint; give it with --source");
  if (backend.rewrite && options.source.empty()) {
    if (options.level == Level::highest || options.level == Level::files) return Level::files;
    fail(ErrorKind::usage, "{}: {} is lossy, so level bytes needs --source", options.out, backend.name);
  }
  if (options.level != Level::highest) return options.level;
  return options.source.empty() || !backend.kernel ? Level::bytes : Level::kernels;
}

DeviceChoice device_for(const VerifyOptions& options, Level level) {
  if (level < Level::bytes) return {};
  if (level == Level::kernels) return choose_device(options.device);
  return choose_device(options.device, PackingWork{.threads = options.threads, .bytes = 0, .unpacks = true});
}

KernelOptions kernel_options(const VerifyOptions& options, const DeviceChoice& devices) {
  KernelOptions kernels = options.kernels;
  kernels.threads = options.threads;
  kernels.part = options.part;
  const bool asked_for = options.level == Level::kernels && options.device.name != "auto";
  kernels.device = devices.gpus.empty() ? "cpu" : asked_for ? "cuda" : "auto";
  if (!devices.gpus.empty()) select_cuda(devices.gpus.front());
  return kernels;
}

std::optional<NewFile> new_save(const VerifyOptions& options) {
  if (options.save.empty()) return {};
  const bool kernels_level = options.level == Level::kernels || options.level == Level::highest;
  if (!kernels_level || options.source.empty())
    fail(ErrorKind::usage,
         "--save belongs to level kernels, which compares with the checkpoint; give it with --source");
  NewFile file(options.save);
  const fs::path path = fs::weakly_canonical(fs::absolute(options.save));
  std::error_code none;  // a missing directory is reported later
  for (const std::string& dir : {options.out, options.source})
    if (const fs::path whole = fs::canonical(dir, none); !whole.empty() && is_below(path, whole))
      fail(ErrorKind::usage, "{}: is inside {}; choose a FILE of --save outside of it", options.save, dir);
  return file;
}

}  // namespace mxfp4
