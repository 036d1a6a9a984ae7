// Compares the rules of --backend auto with the results of the engines' own code in tests/engines/matrix.json.
#include <catch2/catch.hpp>

#include "src/backends/gpu.h"
#include "src/backends/select.h"
#include "src/backends/words.h"
#include "src/base/file.h"
#include "tests/support/testdata.h"

using namespace mxfp4;

namespace {

/// A kernel's name in the engine and in mxfp4-pack. gpu: the first letters of the GPU; "": any GPU.
struct Name {
  std::string_view gpu, theirs, ours;
};
constexpr Name names[] = {
    {"", "MARLIN", "marlin"},
    {"", "HUMMING", "humming"},
    {"", "HUMMING_W4A8", "humming-w4a8"},
    {"", "FLASHINFER_TRTLLM_MXFP4_BF16", "flashinfer-trtllm"},
    {"", "FLASHINFER_TRTLLM_MXFP4_MXFP8", "flashinfer-trtllm"},
    {"", "FLASHINFER_CUTLASS_MXFP4_BF16", "flashinfer-cutlass"},
    {"sm90", "TRITON", "triton-hopper"},
    {"sm100", "TRITON", "triton-blackwell"},
    {"sm120", "TRITON", "triton-blackwell"},
    {"", "DEEPGEMM_MXFP4", "deepgemm"},
    {"sm90", "flashinfer_mxfp4", "flashinfer-cutlass"},
    {"sm100", "flashinfer_mxfp4", "flashinfer-trtllm"},
    {"sm120", "flashinfer_mxfp4", "flashinfer-cutlass-mxfp8"},
    {"sm80", "triton_kernel", "canonical"},
    {"sm90", "triton_kernel", "triton-hopper"},
    {"", "marlin", "marlin"},
    {"gfx950", "unset", "aiter-a16w4"},  // for GPUs without a default runner, SGLang's methods use AITER
    {"gfx950", "auto", "aiter-a16w4"},
    {"", "unset", "unset"},
    {"", "flashinfer_trtllm", "unset"},  // the kernel for FP8 weights
    {"", "CUTLASS_MXFP4_MXFP4", "cutlass-mxfp4"},
    {"", "EMULATION", "canonical"},
    {"", "AITER_MXFP4_BF16", "aiter-a16w4"},
    {"", "AITER_MXFP4_MXFP4", "aiter-w4a4"},
    {"", "AITER_TRITON_MXFP4_BF16", "aiter-triton"},
    {"gfx942", "TRITON", "triton-rocm"},
    {"gfx950", "TRITON", "triton-rocm"},
    {"", "TRITON_UNFUSED", "triton-rocm"},
};

std::string ours(const std::string& theirs, const std::string& gpu) {
  for (const Name& n : names)
    if (n.theirs == theirs && (n.gpu.empty() || n.gpu == gpu)) return std::string(n.ours);
  return "not known: " + theirs;
}

const Rule* rule_of(const std::string& engine, const std::string& family, const std::string& gpu,
                    const std::string& release) {
  for (const Rule& r : find_engine(engine).chooser())
    if ((!*r.families || has_word(r.families, family)) && has_word(r.gpus, gpu) && r.releases.contains(release))
      return &r;
  return nullptr;
}

/// The entries of `order` that are also in `other`.
std::vector<std::string> shared(const std::vector<std::string>& order, const std::vector<std::string>& other) {
  std::vector<std::string> out;
  for (const std::string& name : order)
    if (std::find(other.begin(), other.end(), name) != other.end()) out.push_back(name);
  return out;
}

}  // namespace

TEST_CASE("each engine's own chooser says what the rules say") {
  const Json matrix = parse_json(read_text(testdata() + "/../tests/engines/matrix.json", 1 << 20), "matrix.json");
  const Json& rows = matrix["chosen"];
  for (const Json& row : rows) {
    INFO(row.dump());
    const std::string gpu = row["gpu"];
    std::vector<std::string> said;
    for (const std::string theirs : row["order"])  // 0.26.0 lists two forms of Triton
      if (const std::string name = ours(theirs, gpu); said.empty() || said.back() != name) said.push_back(name);
    const Rule* rule = rule_of(row["engine"], row["family"], gpu, row["version"]);
    if (said.empty()) {  // emulation needs amd-quark, which vLLM does not install
      CHECK((!rule || rule->order == std::string("canonical")));
      continue;
    }
    REQUIRE(rule);
    const std::vector<std::string> order = words(rule->order);
    CHECK(order.front() == said.front());
    CHECK(shared(order, said) == shared(said, order));
    if (row["engine"] != "vllm") continue;  // SGLang's row names one kernel
    for (const std::string& name : order)
      CHECK((name == "humming" || std::find(said.begin(), said.end(), name) != said.end()));
  }
  CHECK(rows.size() > 100);
}
