#include "src/bench/bench.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <fstream>

#include "kernels/pack/cpu/driver.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/threads.h"
#include "src/bench/disk_speed.h"
#include "src/bench/pack_speed.h"
#include "src/synth/describe.h"

namespace mxfp4 {

namespace {

/// What was measured, in bytes per second.
struct Figures {
  std::string processor, gpu;
  int threads = 1;
  DiskSpeed disk;
  double hash = 0;
  std::vector<PackSpeed> packing;

  /// Of Marlin's codes, by the driver that convert would take, with all threads.
  const PackSpeed& typical() const {
    return *std::find_if(packing.begin(), packing.end(), [&](const PackSpeed& s) {
      return s.layout == "marlin.codes" && s.driver == chosen_driver().name && s.threads == threads;
    });
  }
};

/// Seconds to convert so many bytes: all are read and as many are written, while the processor packs and hashes.
struct Prediction {
  int64_t bytes;
  double disk, processor;
  double total() const { return std::max(disk, processor); }
};

Prediction predict(const Figures& f, int64_t bytes) {
  const auto b = double(bytes);
  return {bytes, b / f.disk.read + b / f.disk.write, b / f.typical().pack + 2 * b / f.hash};
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

/// A GB, or what a quarter of the free space allows.
int64_t disk_bytes(const std::string& dir) {
  struct statvfs s;
  if (::statvfs(dir.c_str(), &s) != 0) fail_errno(dir, "cannot ask for free space", errno);
  return std::clamp<int64_t>(int64_t(s.f_bavail) * int64_t(s.f_frsize) / 4, 16 << 20, 1 << 30);
}

Figures measure(const MachineBenchOptions& o) {
  Figures f;
  f.processor = processor_name();
  f.threads = thread_count(o.threads);
  f.hash = hash_speed(f.threads);
  std::vector<Packer> packers;
  for (const Driver* d : drivers())
    if (d->runs_here()) packers.push_back({d->name, [d] { return open_cpu(*d); }});
  std::vector<int> threads = {1};
  if (f.threads > 1) threads.push_back(f.threads);
  const std::vector<Layout> all(layouts.begin(), layouts.end());
  f.packing = pack_speeds(all, packers, threads, o.repeats);
  if (cuda_device_count() > 0) {
    f.gpu = cuda_description();
    for (PackSpeed& s : pack_speeds(all, {{"cuda", [] { return open_cuda(0); }}}, {1}, o.repeats))
      f.packing.push_back(std::move(s));
  }
  f.disk = disk_speed(o.dir, disk_bytes(o.dir), f.threads);  // last: a virtual machine is slower for a while after it
  return f;
}

void print_json(const MachineBenchOptions& o, const Figures& f, const Prediction& p) {
  Json packing = Json::array();
  for (const PackSpeed& s : f.packing)
    packing.push_back({{"layout", s.layout},
                       {"driver", s.driver},
                       {"threads", s.threads},
                       {"memcpy", s.copy},
                       {"pack", s.pack},
                       {"unpack", s.unpack}});
  const Json j = {{"processor", f.processor},
                  {"gpu", f.gpu},
                  {"threads", f.threads},
                  {"driver", chosen_driver().name},
                  {"disk", {{"bytes", f.disk.bytes}, {"read", f.disk.read}, {"write", f.disk.write}}},
                  {"hash", f.hash},
                  {"packing", packing},
                  {"prediction",
                   {{"model", o.model},
                    {"bytes", p.bytes},
                    {"seconds", p.total()},
                    {"disk_seconds", p.disk},
                    {"processor_seconds", p.processor}}}};
  print_out("{}\n", one_line(j));
}

void print_text(const MachineBenchOptions& o, const Figures& f, const Prediction& p) {
  print_out("{}, {} threads, driver {}\n", f.processor, f.threads, chosen_driver().name);
  if (!f.gpu.empty()) print_out("{}\n", f.gpu);
  print_out("disk at {}: read {:.2f} GB/s, write {:.2f} GB/s\n", printable(o.dir), f.disk.read / 1e9,
            f.disk.write / 1e9);
  print_out("hashing: {:.1f} GB/s\n\n", f.hash / 1e9);
  print_out("GB/s of input; per cent of memcpy\n{:28} {:8} {:>7} {:>8} {:>14} {:>14}\n", "layout", "driver", "threads",
            "memcpy", "pack", "unpack");
  for (const PackSpeed& s : f.packing)
    print_out("{:28} {:8} {:7} {:8.2f} {:8.2f} {:3.0f} % {:8.2f} {:3.0f} %\n", s.layout, s.driver, s.threads,
              s.copy / 1e9, s.pack / 1e9, 100 * s.pack / s.copy, s.unpack / 1e9, 100 * s.unpack / s.copy);
  print_out("\n{}, {}: about {:.0f} s, bound by the {} (disk {:.0f} s, processor {:.0f} s)\n", o.model,
            human_bytes(p.bytes), p.total(), p.disk > p.processor ? "disk" : "processor", p.disk, p.processor);
}

}  // namespace

double processor_seconds(int64_t bytes, int threads) {
  const Driver& driver = chosen_driver();
  const Layout marlin = *std::find_if(layouts.begin(), layouts.end(),
                                      [](const Layout& l) { return name_of(l) == std::string_view("marlin.codes"); });
  const auto speeds = pack_speeds({marlin}, {{driver.name, [&] { return open_cpu(driver); }}}, {threads}, 3);
  return double(bytes) / speeds.front().pack + 2 * double(bytes) / hash_speed(threads);
}

void bench(const MachineBenchOptions& options) {
  const int64_t bytes = describe_checkpoint(options.model, {}).bytes;
  const Figures figures = measure(options);
  const Prediction prediction = predict(figures, bytes);
  options.json ? print_json(options, figures, prediction) : print_text(options, figures, prediction);
}

}  // namespace mxfp4
