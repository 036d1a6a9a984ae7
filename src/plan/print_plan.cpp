#include "src/plan/print_plan.h"

#include <cstdio>

#include "src/base/json.h"
#include "src/base/log.h"

namespace mxfp4 {

namespace {

/// One row per output tensor: use(name, dtype, shape, file, bytes).
template <class Use>
void for_each_output(const Plan& plan, Use use) {
  for (const PackedTensor& t : plan.packed)
    use(t.name, t.parameter->dtype, t.shape, plan.files[size_t(t.file)].name, t.bytes);
  for (const CopiedTensor& t : plan.copied) {
    if (t.file < 0) continue;
    use(t.source->name, t.source->dtype, t.source->shape, plan.files[size_t(t.file)].name, t.source->bytes);
  }
}

size_t copied_by(const Plan& plan) { return plan.set ? 0 : plan.copied.size(); }

Json summary(const Plan& plan, int threads) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"backend", plan.backend->name},
          {"engine", plan.backend->engine},
          {"engine_version", text_or_null(plan.engine_version)},
          {"engine_choice", text_or_null(plan.engine_choice)},
          {"layout_version", plan.backend->layout_version},
          {"set", plan.set},
          {"moe_tp_size", plan.tp.size},
          {"ranks", plan.tp.ranks},
          {"packed_tensors", plan.packed.size()},
          {"copied_tensors", copied_by(plan)},
          {"packed_bytes", plan.packed_bytes},
          {"padding_bytes", plan.padding_bytes},
          {"disk_bytes", plan.file_bytes},
          {"peak_memory_bytes", peak_memory(plan, threads)}};
}

void print_json(const Plan& plan, int threads) {
  std::string head = one_line(summary(plan, threads));
  head.pop_back();
  print_out("{},\n\"files\": [", head);
  const char* separator = "\n";
  for (const OutFile& f : plan.files) {
    print_out("{}{{\"name\": \"{}\", \"bytes\": {}}}", separator, f.name, f.bytes);
    separator = ",\n";
  }
  print_out("],\n\"tensors\": [");
  separator = "\n";
  for_each_output(plan,
                  [&](const std::string& name, Dtype dtype, const Dims& shape, const std::string& file, int64_t bytes) {
                    print_out("{}{{\"name\": {}, \"dtype\": \"{}\", \"shape\": [{}], \"file\": \"{}\", \"bytes\": {}}}",
                              separator, Json(name).dump(), name_of(dtype), fmt::join(shape, ","), file, bytes);
                    separator = ",\n";
                  });
  print_out("]}}\n");
}

}  // namespace

int64_t peak_memory(const Plan& plan, int threads) {
  const auto tensors = int64_t(plan.checkpoint->tensors.size());
  return threads * (plan.job_bytes + (int64_t(1) << 20)) + tensors * 600 + (int64_t(8) << 20);
}

void print_plan(const Plan& plan, int threads, bool json) {
  if (json) return print_json(plan, threads);
  for_each_output(plan,
                  [&](const std::string& name, Dtype dtype, const Dims& shape, const std::string& file, int64_t bytes) {
                    print_out("{}  {}  {}  {}\n", printable(name), describe(dtype, shape), file, bytes);
                  });
  const double waste = plan.packed_bytes ? 100.0 * double(plan.padding_bytes) / double(plan.packed_bytes) : 0;
  print_out("\n{} {} for {}, layout version {}\n", plan.backend->name, plan.backend->summary, plan.backend->engine,
            plan.backend->layout_version);
  print_out("packed: {} tensors, {}, of that padding {} ({:.1f} %)\n", plan.packed.size(),
            human_bytes(plan.packed_bytes), human_bytes(plan.padding_bytes), waste);
  if (plan.set)
    print_out("copied: nothing; it is there already\n");
  else
    print_out("copied: {} tensors\n", plan.copied.size());
  print_out("disk: {} ({} bytes) in {} files\n", human_bytes(plan.file_bytes), plan.file_bytes, plan.files.size());
  print_out("peak memory: about {} with {} threads\n", human_bytes(peak_memory(plan, threads)), threads);
}

Json result_of(const Plan& plan, const std::string& out, int64_t zero_scales) {
  Json j = summary(plan, 1);
  j.erase("peak_memory_bytes");
  j["out"] = out;
  j["zero_scales"] = zero_scales;
  return j;
}

void note_result(const Plan& plan, const std::string& out) {
  note(fmt::format("{}: {} packed tensors for {} {}{}, {} {}; check it with: mxfp4-pack verify {}", out,
                   plan.packed.size(), plan.backend->engine, plan.backend->name,
                   plan.tp.size > 1 ? fmt::format(" at tp {}", plan.tp.size) : "", human_bytes(plan.file_bytes),
                   plan.set ? fmt::format("beside {} earlier set{}", plan.set, plan.set > 1 ? "s" : "") : "in all",
                   out));
}

}  // namespace mxfp4
