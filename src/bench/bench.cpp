#include "src/bench/bench.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "kernels/pack/cpu/driver.h"
#include "src/backends/select.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/stream.h"
#include "src/base/table.h"
#include "src/base/terminal.h"
#include "src/base/threads.h"
#include "src/bench/pack_speed.h"
#include "src/bench/predict.h"
#include "src/checkpoint/checkpoint.h"
#include "src/packed/packed_checkpoint.h"
#include "src/synth/describe.h"

namespace mxfp4 {

namespace {

/// What is to be converted, and to what.
struct Question {
  std::string model;
  int64_t bytes;
  const Backend& backend;

  const Layout& layout() const { return backend.parameter(Role::w13, Part::codes).layout; }
};

/// What was measured, in bytes per second.
struct Figures {
  std::string processor, gpu;
  int threads = 1;
  Rates rates;                     // packing: of the layout that is asked for, by convert's driver, with all threads
  std::vector<PackSpeed> packing;  // with -v or as JSON, of every layout
};

std::string processor_name() {
  for (const std::string& line : kernel_lines("/proc/cpuinfo"))
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

/// Of each of two files: a GB, or what a quarter of the free space allows.
int64_t disk_bytes(const std::string& dir) {
  struct statvfs s;
  if (::statvfs(dir.c_str(), &s) != 0) fail_errno(dir, "cannot ask for free space", errno);
  return std::clamp<int64_t>(int64_t(s.f_bavail) * int64_t(s.f_frsize) / 4, 16 << 20, 1 << 30);
}

/// Of all layouts, drivers and numbers of threads, and GPUs.
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
  const int64_t disk = disk_bytes(o.dir);  // first: a folder that is not there needs no minute to be named
  Figures f;
  f.processor = processor_name();
  f.threads = thread_count(o.threads);
  if (cuda_device_count() > 0) f.gpu = cuda_description();
  f.rates.hash = hash_speed(f.threads);
  const Driver& driver = chosen_driver();
  const Packer packer{driver.name, [&] { return open_cpu(driver); }};
  f.rates.pack = pack_speeds({layout}, {packer}, {f.threads}, o.repeats).front().pack;
  if (o.json || verbosity() == Verbosity::verbose) f.packing = every_speed(f.threads, o.repeats);
  // Last: a virtual machine is slower for a while after it.
  f.rates.disk = disk_speed(o.dir, disk, o.threads);
  return f;
}

void print_json(const Question& q, const Figures& f, const RunTime& time) {
  const DiskSpeed& disk = f.rates.disk;
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
                  {"disk", {{"bytes", disk.bytes}, {"read", disk.read}, {"write", disk.write}, {"both", disk.both}}},
                  {"hash", f.rates.hash},
                  {"packing", packing},
                  {"prediction",
                   {{"model", q.model},
                    {"backend", q.backend.name},
                    {"engine", q.backend.engine},
                    {"bytes", q.bytes},
                    {"seconds", time.total()},
                    {"disk_seconds", time.disk},
                    {"processor_seconds", time.processor}}}};
  print_out("{}\n", one_line(j));
}

/// "disk       ##########----------  12 s", the longest with 30 marks, or as many as the terminal has place for.
void print_bar(const char* what, double seconds, double longest) {
  const int most = std::min(30, text_width(1) - 23);
  const int marks = longest > 0 ? int(most * seconds / longest) : 0;
  print_out("  {:<10} {:<{}}  {}\n", what, std::string(size_t(marks), '#'), most, human_seconds(seconds));
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

/// The answer first, then what it was made of.
void print_text(const Question& q, const MachineBenchOptions& o, const Figures& f, const RunTime& time) {
  const auto line = [](const std::string& text) { print_out("{}\n", fitted(text)); };
  const Rates& r = f.rates;
  line(fmt::format("{}, {}, for {} of {}: about {}, bound by the {}", printable(q.model), human_bytes(q.bytes),
                   q.backend.name, q.backend.engine, human_seconds(time.total()), time.bound()));
  print_bar("disk", time.disk, time.total());
  print_bar("processor", time.processor, time.total());
  print_out("\n");
  line(fmt::format("{}, {}, driver {}", f.processor, counted(f.threads, "thread"), chosen_driver().name));
  if (!f.gpu.empty()) line(f.gpu);
  line(fmt::format("disk at {}: read {:.2f} GB/s, write {:.2f}, both at once {:.2f}", printable(o.dir),
                   r.disk.read / 1e9, r.disk.write / 1e9, r.disk.both / 1e9));
  line(fmt::format("hashing: {:.1f} GB/s; packing {}: {:.1f} GB/s", r.hash / 1e9, name_of(q.layout()), r.pack / 1e9));
  if (verbosity() == Verbosity::verbose)
    print_speeds(f);
  else
    note("-v measures every layout, driver and number of threads");
}

Deployment deployment_of(const MachineBenchOptions& o) {
  return {.engine = o.engine, .release = o.engine_version, .gpu = o.gpu, .phase = {}};
}

/// The backend is the one that convert would take.
Question about(const MachineBenchOptions& o, const Checkpoint& checkpoint, const Model& model) {
  const BackendChoice choice = choose_backend(o.backend, model, deployment_of(o));
  int64_t bytes = 0;
  for (const Tensor& t : checkpoint.tensors) bytes += t.bytes;
  return {o.checkpoint, bytes, find_backend(choice.backend, o.engine, choice.layout_version, &model, o.engine_version)};
}

Question about_checkpoint(const MachineBenchOptions& o) {
  Problems problems;
  const Checkpoint checkpoint = open_checkpoint(o.checkpoint, problems);
  const Model model = recognise(checkpoint, {}, problems);
  problems.throw_if_any();
  return about(o, checkpoint, model);
}

/// What an output of mxfp4-pack was made of.
Question about_packed(const MachineBenchOptions& o) {
  Problems problems;
  const auto packed = open_packed(o.checkpoint, problems);
  problems.throw_if_any();
  packed->unpackable_set();
  return about(o, packed->manifest.source, packed->model);
}

Question about_model(const MachineBenchOptions& o) {
  if (o.backend == "auto") fail(ErrorKind::usage, "--backend auto: it depends on the checkpoint; add --checkpoint");
  return {o.model, describe_checkpoint(o.model, {}).bytes,
          find_backend(o.backend, o.engine, "", nullptr, o.engine_version)};
}

Question question_of(const MachineBenchOptions& o) {
  if (o.checkpoint.empty()) return about_model(o);
  return has_manifest(o.checkpoint) ? about_packed(o) : about_checkpoint(o);
}

}  // namespace

void bench(const MachineBenchOptions& options) {
  const Question question = question_of(options);
  check_gpu(question.backend, deployment_of(options));
  const Figures figures = measure(options, question.layout());
  // As many bytes are written as are read, and nearly all are experts'.
  const RunTime time = predict(figures.rates, {question.bytes, question.bytes, question.bytes});
  options.json ? print_json(question, figures, time) : print_text(question, options, figures, time);
}

}  // namespace mxfp4
