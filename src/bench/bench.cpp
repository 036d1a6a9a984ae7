#include "src/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/pack/cpu/driver.h"
#include "src/backends/backend.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/stream.h"
#include "src/base/table.h"
#include "src/base/terminal.h"
#include "src/base/threads.h"
#include "src/bench/pack_speed.h"

namespace mxfp4 {

namespace {

/// The results, in bytes per second.
struct Figures {
  std::string processor, gpu;
  int threads = 1;
  double hash = 0, pack = 0;       // pack: the requested layout, convert's driver, all threads
  std::vector<PackSpeed> packing;  // of every layout, with -v or --json
};

std::string processor_name() {
  for (const std::string& line : kernel_lines("/proc/cpuinfo"))
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

/// The speeds of all layouts, with all drivers, numbers of threads and GPUs.
std::vector<PackSpeed> every_speed(int threads, int repeats) {
  std::vector<Packer> packers;
  for (const Driver* d : drivers())
    if (d->runs_here()) packers.push_back({d->name, [d] { return open_cpu(*d); }});
  std::vector<int> counts = {1};
  if (threads > 1) counts.push_back(threads);
  const std::vector<Layout> all(layouts.begin(), layouts.end());
  std::vector<PackSpeed> speeds = pack_speeds(all, packers, counts, repeats);
  if (cuda_device_count() > 0)
    for (PackSpeed& s : pack_speeds(all, {{"cuda", [] { return open_cuda(0); }}}, {1}, repeats))
      speeds.push_back(std::move(s));
  return speeds;
}

Figures measure(const MachineBenchOptions& o, const Layout& layout) {
  Figures f;
  f.processor = processor_name();
  f.threads = thread_count(o.threads);
  if (cuda_device_count() > 0) f.gpu = cuda_description();
  f.hash = hash_speed(f.threads);
  const Driver& driver = chosen_driver();
  const Packer packer{driver.name, [&] { return open_cpu(driver); }};
  f.pack = pack_speeds({layout}, {packer}, {f.threads}, o.repeats).front().pack;
  if (o.json || verbosity() == Verbosity::verbose) f.packing = every_speed(f.threads, o.repeats);
  return f;
}

void print_json(const Figures& f) {
  Json packing = Json::array();
  for (const PackSpeed& s : f.packing)
    packing.push_back({{"layout", s.layout},
                       {"driver", s.driver},
                       {"threads", s.threads},
                       {"memcpy", s.copy},
                       {"pack", s.pack},
                       {"unpack", s.unpack}});
  const Json j = {{"processor", f.processor},       {"gpu", f.gpu},   {"threads", f.threads},
                  {"driver", chosen_driver().name}, {"hash", f.hash}, {"packing", packing}};
  print_out("{}\n", one_line(j));
}

void print_speeds(const Figures& f) {
  const auto rate = [](double speed) { return fmt::format("{:.2f}", speed / 1e9); };
  const auto share = [](double speed, double of) {
    return fmt::format("{:.2f} {:3.0f} %", speed / 1e9, 100 * speed / of);
  };
  std::vector<std::vector<std::string>> rows = {{"layout", "driver", "threads", "memcpy", "pack", "unpack"}};
  for (const PackSpeed& s : f.packing)
    rows.push_back(
        {s.layout, s.driver, std::to_string(s.threads), rate(s.copy), share(s.pack, s.copy), share(s.unpack, s.copy)});
  print_out("\nGB/s of input; per cent of memcpy\n");
  for (const std::string& line : table(rows, "<<>>>>")) print_out("{}\n", line);
}

void print_text(const Layout& layout, const Figures& f) {
  const auto line = [](const std::string& text) { print_out("{}\n", fitted(text)); };
  line(fmt::format("{}, {}, driver {}", f.processor, counted(f.threads, "thread"), chosen_driver().name));
  if (!f.gpu.empty()) line(f.gpu);
  line(fmt::format("hashing: {:.1f} GB/s; packing {}: {:.1f} GB/s", f.hash / 1e9, name_of(layout), f.pack / 1e9));
  if (verbosity() == Verbosity::verbose)
    print_speeds(f);
  else
    note("-v measures every layout, driver and number of threads");
}

}  // namespace

void bench(const MachineBenchOptions& options) {
  const Backend& backend = find_backend(options.backend, options.engine, "", nullptr, options.engine_version);
  const Layout& layout = backend.parameter(Role::w13, Part::codes).layout;
  const Figures figures = measure(options, layout);
  options.json ? print_json(figures) : print_text(layout, figures);
}

}  // namespace mxfp4
