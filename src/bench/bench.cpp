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
#include "src/checkpoint/checkpoint.h"
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

void print_json(const std::string& model, const Figures& f, const Prediction& p) {
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
                   {{"model", model},
                    {"bytes", p.bytes},
                    {"seconds", p.total()},
                    {"disk_seconds", p.disk},
                    {"processor_seconds", p.processor}}}};
  print_out("{}\n", one_line(j));
}

/// "disk       ##########----------  12 s", the longest with 30 marks.
void print_bar(const char* what, double seconds, double longest) {
  const int marks = longest > 0 ? int(30 * seconds / longest) : 0;
  print_out("  {:<10} {:<30}  {}\n", what, std::string(size_t(marks), '#'), human_seconds(seconds));
}

void print_speeds(const Figures& f) {
  print_out("\nGB/s of input; per cent of memcpy\n{:24} {:7} {:>7} {:>7} {:>13} {:>13}\n", "layout", "driver",
            "threads", "memcpy", "pack", "unpack");
  for (const PackSpeed& s : f.packing)
    print_out("{:24} {:7} {:7} {:7.2f} {:7.2f} {:3.0f} % {:7.2f} {:3.0f} %\n", s.layout, s.driver, s.threads,
              s.copy / 1e9, s.pack / 1e9, 100 * s.pack / s.copy, s.unpack / 1e9, 100 * s.unpack / s.copy);
}

/// The answer first, then what it was made of.
void print_text(const std::string& model, const MachineBenchOptions& o, const Figures& f, const Prediction& p) {
  print_out("{}, {}: about {}, bound by the {}\n", printable(model), human_bytes(p.bytes), human_seconds(p.total()),
            p.disk > p.processor ? "disk" : "processor");
  print_bar("disk", p.disk, p.total());
  print_bar("processor", p.processor, p.total());
  print_out("\n{}, {} threads, driver {}\n", f.processor, f.threads, chosen_driver().name);
  if (!f.gpu.empty()) print_out("{}\n", f.gpu);
  print_out("disk at {}: read {:.2f} GB/s, write {:.2f} GB/s\n", printable(o.dir), f.disk.read / 1e9,
            f.disk.write / 1e9);
  print_out("hashing: {:.1f} GB/s; packing {}: {:.1f} GB/s\n", f.hash / 1e9, f.typical().layout,
            f.typical().pack / 1e9);
  if (verbosity() == Verbosity::verbose)
    print_speeds(f);
  else
    note("-v prints every layout, driver and number of threads");
}

/// Bytes of all tensors of a checkpoint.
int64_t checkpoint_bytes(const std::string& dir) {
  Problems problems;
  const Checkpoint checkpoint = open_checkpoint(dir, problems);
  problems.throw_if_any();
  int64_t bytes = 0;
  for (const Tensor& t : checkpoint.tensors) bytes += t.bytes;
  return bytes;
}

}  // namespace

double processor_seconds(int64_t bytes, int threads) {
  const Driver& driver = chosen_driver();
  const auto speeds =
      pack_speeds({*find_layout("marlin.codes")}, {{driver.name, [&] { return open_cpu(driver); }}}, {1}, 3);
  return (double(bytes) / speeds.front().pack + 2 * double(bytes) / hash_speed(1)) / threads;
}

void bench(const MachineBenchOptions& options) {
  const bool own = !options.checkpoint.empty();
  const int64_t bytes = own ? checkpoint_bytes(options.checkpoint) : describe_checkpoint(options.model, {}).bytes;
  const std::string& model = own ? options.checkpoint : options.model;
  const Figures figures = measure(options);
  const Prediction prediction = predict(figures, bytes);
  options.json ? print_json(model, figures, prediction) : print_text(model, options, figures, prediction);
}

}  // namespace mxfp4
