// --backend auto: the choices of engine releases, and the backend that is written.
#include "src/backends/select.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "src/backends/gpu.h"
#include "src/backends/unread.h"
#include "src/synth/synth.h"
#include "tests/support/program.h"

using namespace mxfp4;

TEST_CASE("a GPU is known by its architecture and by its name") {
  for (const auto& [name, architecture] : {std::pair("sm90", "sm90"),
                                           {"H100", "sm90"},
                                           {"h200", "sm90"},
                                           {"T4", "sm75"},
                                           {"a100", "sm80"},
                                           {"RTX4090", "sm89"},
                                           {"gb200", "sm100"},
                                           {"b300", "sm103"},
                                           {"mi355x", "gfx950"},
                                           {"CPU", "cpu"},
                                           {"h10", ""},
                                           {"h100 h200", ""},
                                           {"", ""}})
    CHECK(architecture_of(name) == architecture);
}

TEST_CASE("what an engine would take and what is written are told apart, for each release") {
  Model deepseek;
  deepseek.family = "deepseek-v4";
  deepseek.layers.resize(1);
  deepseek.layers[0].hidden = 4096, deepseek.layers[0].intermediate = 2048;
  const auto choice = [&](const char* engine, const char* release, const char* gpu) {
    return select_backend(deepseek, {.engine = engine, .release = release, .gpu = gpu});
  };
  const BackendChoice marlin = choice("vllm", "0.31.0", "sm90"), humming = choice("vllm", "0.32.0", "sm90");
  CHECK(marlin.engine_choice == "marlin");
  CHECK(marlin.why.find("vllm 0.31.0 on sm90 (fused_moe/oracle/mxfp4.py) prefers marlin") == 0);
  CHECK(humming.engine_choice == "humming");
  const BackendChoice lossy = choice("vllm", "0.33.0", "sm90");
  CHECK(lossy.engine_choice == "humming-w4a8");
  CHECK(lossy.backend == "humming");
  CHECK(lossy.alternatives.front() == "marlin");
  CHECK(lossy.why.find("not humming-w4a8: lossy; choose it with --backend humming-w4a8") != std::string::npos);
  CHECK(std::count(lossy.lossy_alternatives.begin(), lossy.lossy_alternatives.end(), "humming-w4a8") == 1);
  const BackendChoice old = choice("sglang", "0.5.18", "sm90");
  CHECK(old.engine_choice == "unset");
  CHECK(old.backend == "marlin");
  CHECK(old.is_read);
  CHECK(old.layout_version == "1");
  CHECK(choice("sglang", "0.5.23", "sm90").alternatives.front() == "marlin");
  CHECK_THROWS_WITH(choice("sglang", "0.5.23", "sm80"),
                    Catch::Contains("mxfp4_marlin_moe.py, which raises below SM90") &&
                        Catch::Contains("no backend of mxfp4-pack runs there; use --engine vllm --backend marlin"));
  const BackendChoice loaded = choice("sglang", "0.5.23", "sm120");
  CHECK(loaded.engine_choice == "flashinfer-cutlass-mxfp8");
  CHECK(loaded.backend == "flashinfer-cutlass-mxfp8");
  CHECK(loaded.alternatives == std::vector<std::string>{"marlin"});
  CHECK(choice("sglang", "0.5.23", "sm100").alternatives.front() != "marlin");
  CHECK(choice("sglang", "0.5.21", "sm120").backend == "flashinfer-cutlass-mxfp8");
  for (const std::string& name : choice("vllm", "", "sm100").alternatives)
    CHECK((name == "marlin" || name == "deepgemm" || name == "triton-blackwell" || name == "flashinfer-cutlass-mxfp8"));
}

TEST_CASE("auto follows the engines on all of Blackwell, Rubin and MI300") {
  Model gpt_oss, deepseek, kimi;
  gpt_oss.family = "gpt-oss", gpt_oss.pairs = true;
  deepseek.family = "deepseek-v4";
  kimi.family = "kimi-k3";
  for (Model* m : {&gpt_oss, &deepseek, &kimi}) {
    m->layers.resize(1);
    m->layers[0].hidden = 4096, m->layers[0].intermediate = 2048;
  }
  const auto choice = [](const Model& m, const char* engine, const char* gpu, const char* release = "") {
    return select_backend(m, {.engine = engine, .release = release, .gpu = gpu});
  };
  for (const char* gpu : {"sm100", "sm103", "sm107"})
    for (const char* engine : {"vllm", "sglang"})
      for (const Model* m : {&gpt_oss, &deepseek, &kimi}) CHECK(choice(*m, engine, gpu).backend == "flashinfer-trtllm");
  for (const char* gpu : {"sm120", "sm121"}) {
    INFO(gpu);
    CHECK(choice(gpt_oss, "sglang", gpu).backend == "flashinfer-cutlass-mxfp8");
    for (const char* release : {"0.26.0", "0.28.0", "0.33.0"}) {
      CHECK(choice(deepseek, "vllm", gpu, release).engine_choice == "deepgemm");
      CHECK(choice(deepseek, "vllm", gpu, release).backend == "deepgemm");
    }
    const BackendChoice without = choice(deepseek, "vllm", gpu, "0.27.1");
    CHECK(without.engine_choice == "deepgemm");
    CHECK(without.backend == "marlin");
    CHECK(without.why.find(fmt::format("not deepgemm: vllm 0.27.1 brings no such kernel for {}", gpu)) !=
          std::string::npos);
  }
  CHECK(choice(deepseek, "vllm", "sm100", "0.27.1").backend == "flashinfer-trtllm");
  const Backend& deepgemm = find_backend("deepgemm", "vllm", "", &deepseek, "");
  CHECK_THROWS_WITH(check_gpu(deepgemm, {.engine = "vllm", .release = "0.27.1", .gpu = "sm120"}),
                    "--gpu sm120: deepgemm: vllm 0.27.1 brings no such kernel for sm120");
  CHECK_NOTHROW(check_gpu(deepgemm, {.engine = "vllm", .release = "0.28.0", .gpu = "sm120"}));
  CHECK_NOTHROW(check_gpu(deepgemm, {.engine = "vllm", .release = "0.27.1", .gpu = ""}));
  const Backend& of_sglang = find_backend("deepgemm", "sglang", "", &deepseek, "");
  CHECK_NOTHROW(check_gpu(of_sglang, {.engine = "sglang", .release = "", .gpu = "sm120"}));  // newest
  const auto has_deepgemm = [&](const char* release) {
    const std::vector<std::string> others =
        select_backend(kimi, {.engine = "sglang", .release = release, .gpu = "sm120", .no_loader = true}).alternatives;
    return std::find(others.begin(), others.end(), "deepgemm") != others.end();
  };
  CHECK(has_deepgemm("0.5.23"));
  CHECK_FALSE(has_deepgemm("0.5.20"));
  CHECK_THROWS_WITH(choice(gpt_oss, "sglang", "gfx942"),
                    Catch::Contains("sglang 0.5.23 on gfx942 (quantization/mxfp4.py) refuses MXFP4"));
  CHECK_THROWS_WITH(choice(kimi, "vllm", "gfx942"), Catch::Contains("which emulates if amd-quark is installed"));
}

TEST_CASE("auto writes for triton_kernels what vLLM makes on that GPU and so many ranks") {
  Model gpt_oss, deepseek;
  gpt_oss.family = "gpt-oss", gpt_oss.pairs = true;
  deepseek.family = "deepseek-v4";
  for (Model* m : {&gpt_oss, &deepseek}) {
    m->layers.resize(1);
    m->layers[0].hidden = 4096, m->layers[0].intermediate = 2048;
  }
  const auto choice = [](const Model& m, const char* gpu, const char* release, int tp_size = 1) {
    return select_backend(m, {.engine = "vllm", .release = release, .gpu = gpu, .tp_size = tp_size});
  };
  const auto form = [&](const Model& m, const char* gpu, const char* release, int tp_size = 1) {
    const BackendChoice c = choice(m, gpu, release, tp_size);
    return c.backend + " " + c.layout_version;
  };
  CHECK(form(gpt_oss, "gfx942", "0.33.0") == "aiter-triton transposed");
  CHECK(form(gpt_oss, "gfx942", "0.30.0") == "aiter-triton strided");
  CHECK(form(gpt_oss, "gfx942", "0.29.0") == "triton-rocm strided");
  CHECK(form(deepseek, "gfx942", "0.33.0") == "triton-rocm transposed-128");
  CHECK(form(deepseek, "gfx942", "0.26.0") == "triton-rocm strided");
  const auto has = [](const BackendChoice& c, const char* name) {
    return std::find(c.alternatives.begin(), c.alternatives.end(), name) != c.alternatives.end();
  };
  CHECK(choice(gpt_oss, "gfx950", "0.33.0").backend == "aiter-a16w4");
  for (const char* name : {"aiter-triton", "triton-rocm"}) {
    CHECK(has(choice(gpt_oss, "gfx950", "0.33.0"), name));
    for (const char* gpu : {"gfx950", ""}) {
      const auto asked = [&](int tp_size) {
        return choose_backend(name, gpt_oss, {.engine = "vllm", .release = "", .gpu = gpu, .tp_size = tp_size})
            .layout_version;
      };
      CHECK(asked(2) == "cdna4");
      CHECK(asked(4) == "transposed");
    }
  }
  CHECK(choice(gpt_oss, "sm120", "0.33.0").backend == "marlin");
  CHECK(has(choice(gpt_oss, "sm120", "0.33.0"), "triton-blackwell"));
  CHECK_FALSE(has(choice(gpt_oss, "sm120", "0.31.0"), "triton-blackwell"));
}

TEST_CASE("a backend that is named has the form that is found without a GPU, on few ranks") {
  Model pairs, halves;
  pairs.family = "gpt-oss", pairs.pairs = true;
  halves.family = "deepseek-v4";
  for (const Model* m : {&pairs, &halves})
    for (const Backend* b : backends()) {
      INFO(b->name << " of " << b->engine << ", " << m->family);
      const BackendChoice chosen = choose_backend(b->name, *m, {.engine = b->engine, .release = "", .gpu = ""});
      if (chosen.layout_version.empty()) continue;  // the newest release loads no layout version
      CHECK(&find_backend(b->name, b->engine, "", m) == &find_backend(b->name, b->engine, chosen.layout_version, m));
    }
}
