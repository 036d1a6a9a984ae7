#include "src/backends/select.h"

#include <algorithm>
#include <sstream>

namespace mxfp4 {

namespace {

enum class Kin { gpt_oss, deepseek_v4, other };

/// The order in which an engine looks for a kernel, of those that are written here.
struct Rule {
  const char* engine;
  Kin kin;
  const char* gpus;   // separated by spaces
  const char* order;  // backends, separated by spaces
  const char* why;
};

/// gpus: of NVIDIA by compute capability, of AMD by LLVM target as in ROCm's GPU specifications.
struct Architecture {
  const char* name;
  const char* gpus;  // separated by spaces
};
constexpr Architecture architectures[] = {
    {"sm75", "t4"},
    {"sm80", "a30 a100"},
    {"sm86", "a10 a40 a6000 rtx3090"},
    {"sm87", "orin"},
    {"sm89", "l4 l40 l40s rtx4090"},
    {"sm90", "h20 h100 h200 gh200"},
    {"sm100", "b100 b200 gb200"},
    {"sm103", "b300 gb300"},
    {"sm120", "rtx5090"},
    {"sm121", "gb10"},
    {"gfx950", "mi350x mi355x"},
    {"cpu", ""},
};

constexpr const char* blackwell = "sm100 sm103";
constexpr const char* older = "sm75 sm80 sm86 sm87 sm89 sm120 sm121";

/// vLLM: the MXFP4 oracle at 446179f8 (mid-2026); without a request for quantised activations it drops the backends
/// that quantise them. SGLang: server_args and the methods of mid-2026; what its `auto` is for DeepSeek-V4 was found
/// for SM120 only. transformers has one kernel.
constexpr Rule rules[] = {
    {"vllm", Kin::gpt_oss, blackwell, "flashinfer-trtllm triton-blackwell marlin",
     "vLLM's order for GPT-OSS begins with FlashInfer TRTLLM on SM100"},
    {"vllm", Kin::gpt_oss, "sm90", "triton-hopper flashinfer-cutlass marlin",
     "vLLM's order for GPT-OSS on SM90 is Triton, then FlashInfer CUTLASS where triton_kernels is missing, then "
     "Marlin"},
    {"vllm", Kin::gpt_oss, older, "marlin", "Marlin is the only one in vLLM's order for GPT-OSS that runs there"},
    {"vllm", Kin::gpt_oss, "gfx950", "aiter-a16w4",
     "vLLM's order for GPT-OSS on ROCm begins with AITER where VLLM_ROCM_USE_AITER=1, else it is Triton, not written "
     "here"},
    {"vllm", Kin::deepseek_v4, blackwell, "flashinfer-trtllm deepgemm marlin",
     "vLLM's order for DeepSeek-V4 is FlashInfer TRTLLM, DeepGEMM, Marlin"},
    {"vllm", Kin::deepseek_v4, "sm90", "marlin",
     "of vLLM's order for DeepSeek-V4 (FlashInfer TRTLLM, DeepGEMM, Marlin) only Marlin runs there"},
    {"vllm", Kin::deepseek_v4, older, "marlin",
     "of vLLM's order for DeepSeek-V4 (FlashInfer TRTLLM, DeepGEMM, Marlin) only Marlin runs there"},
    {"vllm", Kin::deepseek_v4, "gfx950", "aiter-a16w4", "vLLM's order for DeepSeek-V4 on ROCm begins with AITER"},
    {"vllm", Kin::gpt_oss, "cpu", "vllm-cpu", "vLLM has one MXFP4 MoE for CPUs"},
    {"vllm", Kin::deepseek_v4, "cpu", "vllm-cpu", "vLLM has one MXFP4 MoE for CPUs"},
    {"sglang", Kin::gpt_oss, blackwell, "flashinfer-trtllm",
     "SGLang takes flashinfer_mxfp4 for GPT-OSS on SM100, which is the TRTLLM form there"},
    {"sglang", Kin::gpt_oss, "sm90", "triton-hopper",
     "SGLang takes triton_kernel for GPT-OSS where triton_kernels is installed and ep_size is 1"},
    {"sglang", Kin::gpt_oss, "gfx950", "aiter-a16w4", "SGLang takes AITER for GPT-OSS where SGLANG_USE_AITER=1"},
    {"sglang", Kin::deepseek_v4, "sm120 sm121", "flashinfer-cutlass-mxfp8",
     "SGLang takes FlashInfer CUTLASS for DeepSeek-V4 on SM120 (#30272)"},
    {"transformers", Kin::gpt_oss, "sm90", "triton-hopper", "transformers has no other kernel"},
};

/// Fused MoE of 4096 x 2048, 256 experts, top 6, uniform routing on one H200; microseconds.
struct Measured {
  const char* phase;
  const char* order;
  const char* why;
};
constexpr Measured measured[] = {
    {"decode", "triton-hopper marlin flashinfer-cutlass",
     "measured on an H200 with 16 tokens: Triton 389 us, Marlin 410, FlashInfer CUTLASS 477 (with 1: 66, 59, 77)"},
    {"prefill", "triton-hopper flashinfer-cutlass marlin",
     "measured on an H200 with 4096 tokens: Triton 3298 us, FlashInfer CUTLASS 4712, Marlin 6332"},
};

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

bool names(const char* text, const std::string& word) {
  const auto all = words(text);
  return std::find(all.begin(), all.end(), word) != all.end();
}

Kin kin_of(const Model& m) {
  return m.pairs ? Kin::gpt_oss : m.family.starts_with("deepseek-v4") ? Kin::deepseek_v4 : Kin::other;
}

/// Why a backend is none for this model; empty where it is one.
std::string obstacle(const std::string& name, const std::string& engine, const Model& model) {
  for (const Backend* b : backends()) {
    if (name != b->name || engine != b->engine || (b->takes && !b->takes(model))) continue;
    if (b->refuse)
      for (const MoeLayer& layer : model.layers)
        if (std::string why = b->refuse(model, {layer.hidden, layer.intermediate}); !why.empty()) return why;
    return {};
  }
  return fmt::format("not written for {}", engine);
}

/// Every backend of the engine that can hold the model without a loss, for the message that the order is not known.
std::string possible(const std::string& engine, const Model& model) {
  std::vector<std::string> out;
  for (const Backend* b : backends())
    if (engine == b->engine && !b->rewrite && std::find(out.begin(), out.end(), b->name) == out.end() &&
        obstacle(b->name, engine, model).empty())
      out.push_back(b->name);
  return fmt::format("{}", fmt::join(out, ", "));
}

/// Triton's measured kernel fuses GPT-OSS's activation; no engine runs that for other models.
bool was_measured(const std::string& backend, const Model& model) { return backend != "triton-hopper" || model.pairs; }

BackendChoice choose(const std::vector<std::string>& order, std::string why, const Model& model, const Deployment& d) {
  BackendChoice c;
  for (const std::string& name : order) {
    const std::string not_for = obstacle(name, d.engine, model);
    if (!not_for.empty())
      why += fmt::format("; not {}: {}", name, not_for);
    else if (c.backend.empty())
      c.backend = name;
    else
      c.alternatives.push_back(name);
  }
  if (c.backend.empty())
    fail(ErrorKind::usage, "--backend auto: {}; say --backend, of {}", why, possible(d.engine, model));
  c.why = std::move(why);
  return c;
}

BackendChoice by_phase(const Model& model, const Deployment& d) {
  if (d.gpu != "sm90") fail(ErrorKind::usage, "--phase: measured on sm90 only; leave it out, or say --backend");
  for (const Measured& m : measured) {
    if (d.phase != m.phase) continue;
    std::vector<std::string> order;
    for (const std::string& name : words(m.order))
      if (was_measured(name, model)) order.push_back(name);
    return choose(order, m.why, model, d);
  }
  fail(ErrorKind::usage, "--phase '{}': prefill or decode expected", d.phase);
}

}  // namespace

std::string architecture_of(const std::string& gpu) {
  std::string name = gpu;
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  for (const Architecture& a : architectures)
    if (name == a.name || names(a.gpus, name)) return a.name;
  return {};
}

std::string known_architectures() {
  std::vector<std::string> list;
  for (const Architecture& a : architectures)
    list.push_back(*a.gpus ? fmt::format("{} ({})", a.name, fmt::join(words(a.gpus), ", ")) : a.name);
  return fmt::format("{}", fmt::join(list, ", "));
}

BackendChoice select_backend(const Model& model, const Deployment& d) {
  if (d.gpu.empty()) fail(ErrorKind::usage, "--backend auto needs --gpu: {}", known_architectures());
  if (!d.phase.empty()) return by_phase(model, d);
  for (const Rule& r : rules)
    if (d.engine == r.engine && kin_of(model) == r.kin && names(r.gpus, d.gpu))
      return choose(words(r.order), r.why, model, d);
  fail(ErrorKind::usage, "--backend auto: what {} chooses for {} on {} is not known; say --backend, of {}", d.engine,
       model.family, d.gpu, possible(d.engine, model));
}

}  // namespace mxfp4
