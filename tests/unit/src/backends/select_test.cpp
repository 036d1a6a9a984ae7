#include "src/backends/select.h"

#include <catch2/catch.hpp>

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

TEST_CASE("auto chooses as the engine does, and says so where that is not known") {
  Model gpt_oss, deepseek, kimi;
  gpt_oss.family = "gpt-oss";
  gpt_oss.pairs = true;
  deepseek.family = "deepseek-v4";
  kimi.family = "kimi-k3";
  for (Model* m : {&gpt_oss, &deepseek, &kimi}) m->layers.resize(1);
  gpt_oss.layers[0].hidden = gpt_oss.layers[0].intermediate = 2880;
  for (Model* m : {&deepseek, &kimi}) m->layers[0].hidden = 4096, m->layers[0].intermediate = 2048;
  const auto chosen = [](const Model& m, const char* engine, const char* gpu, const char* phase = "") {
    try {
      return select_backend(m, {engine, gpu, phase}).backend;
    } catch (const Error& e) {
      return e.lines.front();
    }
  };
  CHECK(chosen(gpt_oss, "vllm", "sm90") == "triton-hopper");
  CHECK(chosen(gpt_oss, "vllm", "sm100") == "flashinfer-trtllm");
  CHECK(chosen(gpt_oss, "vllm", "sm89") == "marlin");
  CHECK(chosen(gpt_oss, "sglang", "sm90") == "triton-hopper");
  CHECK(chosen(gpt_oss, "transformers", "sm90") == "triton-hopper");
  CHECK(chosen(deepseek, "vllm", "sm90") == "marlin");
  CHECK(chosen(deepseek, "vllm", "sm100") == "flashinfer-trtllm");
  CHECK(chosen(deepseek, "vllm", "gfx950") == "aiter-a16w4");
  CHECK(chosen(deepseek, "sglang", "sm120") == "flashinfer-cutlass-mxfp8");
  CHECK(chosen(deepseek, "sglang", "sm90").find("what sglang chooses for deepseek-v4 on sm90 is not known") !=
        std::string::npos);
  CHECK(chosen(kimi, "vllm", "sm90").find("not known; say --backend, of marlin, ") != std::string::npos);
  CHECK(chosen(gpt_oss, "vllm", "").find("needs --gpu: sm75 (t4), ") != std::string::npos);
  CHECK(chosen(gpt_oss, "vllm", "sm90", "prefill") == "triton-hopper");
  CHECK(chosen(deepseek, "vllm", "sm90", "prefill") == "flashinfer-cutlass");
  CHECK(chosen(deepseek, "vllm", "sm90", "decode") == "marlin");
  CHECK(chosen(deepseek, "vllm", "sm100", "decode").find("measured on sm90 only") != std::string::npos);
  const BackendChoice c = select_backend(gpt_oss, {"vllm", "sm90", ""});
  CHECK(c.alternatives == std::vector<std::string>{"flashinfer-cutlass", "marlin"});
  deepseek.layers[0].intermediate = 96;
  CHECK(chosen(deepseek, "sglang", "sm90", "prefill") == "marlin");  // FlashInfer's cannot be padded there
}
