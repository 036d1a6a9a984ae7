#include "src/plan/print_plan.h"

#include <cstdio>

#include "src/backends/loaders.h"
#include "src/backends/serve.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/table.h"
#include "src/base/terminal.h"
#include "src/plan/rank_advice.h"

namespace mxfp4 {

namespace {

/// The memory in bytes that `convert` needs at its peak: buffers of `threads` workers, and the plan itself.
int64_t peak_memory(const Plan& plan, int threads) {
  const auto tensors = int64_t(plan.checkpoint->tensors.size());
  return threads * (plan.job_bytes + (int64_t(1) << 20)) + tensors * 600 + (int64_t(8) << 20);
}

/// One row per output tensor: use(name, dtype, shape, file, bytes).
template <class Use>
void for_each_output(const Plan& plan, Use use) {
  for (const PackedTensor& t : plan.packed)
    use(t.name, t.parameter->dtype, t.shape, plan.files[size_t(t.file)].name, t.bytes);
  for (const CopiedTensor& t : plan.copied)
    if (t.file)
      use(t.source->name, t.source->dtype, t.source->shape, plan.files[size_t(*t.file)].name, t.source->bytes);
}

size_t copied_by(const Plan& plan) { return plan.set ? 0 : plan.copied.size(); }

Json summary(const Plan& plan) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"backend", plan.backend->name},
          {"engine", plan.backend->engine},
          {"engine_version", text_or_null(plan.engine_version)},
          {"engine_choice", text_or_null(plan.engine_choice)},
          {"layout_version", plan.backend->layout_version},
          {"set", plan.set},
          {"moe_tp_size", plan.tp_size},
          {"packed_tensors", plan.packed.size()},
          {"copied_tensors", copied_by(plan)},
          {"packed_bytes", plan.packed_bytes},
          {"padding_bytes", plan.padding_bytes},
          {"disk_bytes", plan.file_bytes}};
}

void print_json(const Plan& plan, const PlanCost& cost) {
  Json object = summary(plan);
  object["peak_memory_bytes"] = peak_memory(plan, cost.threads);
  object["free_bytes"] = cost.free;
  std::string head = one_line(object);
  head.pop_back();
  print_out("{},\n\"files\": [", head);
  const char* separator = "\n";
  for (const OutFile& f : plan.files) {
    print_out("{}{{\"name\": {}, \"bytes\": {}}}", separator, one_line(f.name), f.bytes);
    separator = ",\n";
  }
  print_out("],\n\"tensors\": [");
  separator = "\n";
  for_each_output(plan,
                  [&](const std::string& name, Dtype dtype, const Dims& shape, const std::string& file, int64_t bytes) {
                    print_out("{}{{\"name\": {}, \"dtype\": \"{}\", \"shape\": [{}], \"file\": {}, \"bytes\": {}}}",
                              separator, one_line(name), name_of(dtype), fmt::join(shape, ","), one_line(file), bytes);
                    separator = ",\n";
                  });
  print_out("]}}\n");
}

/// Tensors of one role, or the copied ones.
struct Kind {
  std::string name, shape;  // of the first
  int64_t tensors = 0, bytes = 0;
  bool alike = true;

  void add(Dtype dtype, const Dims& dims, int64_t size) {
    const std::string text = describe(dtype, dims);
    if (tensors++ == 0) shape = text;
    alike &= shape == text;
    bytes += size;
  }
};

void print_kinds(const Plan& plan) {
  std::vector<Kind> kinds;
  for (const Role role : roles)
    for (const Part part : parts) {
      Kind kind{fmt::format("{} {}", name_of(role), name_of(part)), "", 0, 0, true};
      for (const PackedTensor& t : plan.packed)
        if (t.role == role && t.part == part) kind.add(t.parameter->dtype, t.shape, t.bytes);
      if (kind.tensors) kinds.push_back(kind);
    }
  Kind copied{"copied", "", 0, 0, true};
  for (const CopiedTensor& t : plan.copied)
    if (t.file) copied.add(t.source->dtype, t.source->shape, t.source->bytes);
  if (copied.tensors) kinds.push_back(copied);
  std::vector<std::vector<std::string>> rows = {{"ROLE", "TENSORS", "BYTES", "EACH"}};
  for (const Kind& k : kinds)
    rows.push_back({k.name, std::to_string(k.tensors), human_bytes(k.bytes), k.alike ? k.shape : "various"});
  for (const std::string& line : table(rows, "<>><")) print_out("{}\n", line);
}

}  // namespace

void note_tensors(const Plan& plan) {
  if (verbosity() != Verbosity::verbose) return;
  for_each_output(plan,
                  [&](const std::string& name, Dtype dtype, const Dims& shape, const std::string& file, int64_t bytes) {
                    note_detail(fmt::format("{}  {}  {}  {}", name, describe(dtype, shape), file, bytes));
                  });
}

void print_plan(const Plan& plan, const PlanCost& cost, bool json) {
  if (json) return print_json(plan, cost);
  if (verbosity() == Verbosity::verbose) {
    for_each_output(plan, [&](const std::string& name, Dtype dtype, const Dims& shape, const std::string& file,
                              int64_t bytes) {
      print_out("{}\n", fitted(fmt::format("{}  {}  {}  {}", printable(name), describe(dtype, shape), file, bytes)));
    });
    print_out("\n");
  }
  print_kinds(plan);
  const auto line = [](const std::string& text) { print_out("{}\n", fitted(text)); };
  const double waste = plan.packed_bytes ? 100.0 * double(plan.padding_bytes) / double(plan.packed_bytes) : 0;
  print_out("\n");
  line(fmt::format("{} of {}, layout version {}: {}", plan.backend->name, plan.backend->engine,
                   plan.backend->layout_version, plan.backend->summary));
  if (const std::string fits = describe_fits(*plan.backend, plan.model->family); !fits.empty())
    line(fmt::format("{}: {}", plan.backend->layout_file.empty() ? "made for" : "made with", fits));
  if (const std::string settings = describe_settings(*plan.backend, plan.model); !settings.empty())
    line(fmt::format("settings: {}", settings));
  line(fmt::format("packed: {}, {}, of that padding {} ({:.1f} %)", counted(plan.packed.size(), "tensor"),
                   human_bytes(plan.packed_bytes), human_bytes(plan.padding_bytes), waste));
  if (plan.set) line("copied: nothing; OUT has these tensors already");
  line(fmt::format("disk: {} ({} bytes) in {}; {} are free", human_bytes(plan.file_bytes), plan.file_bytes,
                   counted(plan.files.size(), "file"), human_bytes(cost.free)));
  line(fmt::format("peak memory: about {} with {}", human_bytes(peak_memory(plan, cost.threads)),
                   counted(cost.threads, "thread")));
}

Json result_of(const Plan& plan, const std::string& out, int64_t zero_scales) {
  Json j = summary(plan);
  j["out"] = out;
  j["zero_scales"] = zero_scales;
  return j;
}

void note_result(const Plan& plan, const std::string& source, const std::string& out, double seconds) {
  const Backend& b = *plan.backend;
  note(fmt::format("{}: {} for {} {}{}, {} {}, in {} ({})", out, counted(plan.packed.size(), "packed tensor"), b.engine,
                   b.name, plan.tp_size > 1 ? fmt::format(" at tp {}", plan.tp_size) : "", human_bytes(plan.file_bytes),
                   plan.set ? "beside " + counted(plan.set, "earlier set") : "in all", human_seconds(seconds),
                   human_rate(plan.file_bytes, seconds)));
  note(fmt::format("check it with: mxfp4-pack verify {}{}", shell_word(out), source));
  const bool is_read = has_loader(b, plan.model->family, plan.engine_version);
  const std::string settings = describe_who_sets(b, *plan.model, is_read), fits = describe_fits(b, plan.model->family);
  const char* what = !b.layout_file.empty() ? "its layout was made with" : is_read ? "it fits" : "made for";
  if (!fits.empty()) note(fmt::format("{} {}{}", what, fits, settings.empty() ? "" : "; " + settings));
  const std::string serve =
      serve_command({b, *plan.model, plan.engine_version, plan.tp_size, plan.set == 0, load_of(plan)}, out);
  if (!serve.empty()) note(fmt::format("serve it with: {}", serve));
  if (!serve.empty())
    note(fmt::format("this set is for tensor-parallel size {} only; convert --add --tp-size N adds one for N",
                     plan.tp_size));
}

}  // namespace mxfp4
