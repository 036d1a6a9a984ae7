// The backends that names, engines, layout versions and releases select.
#include <catch2/catch.hpp>

#include "src/backends/backend.h"
#include "tests/support/said.h"

using namespace mxfp4;

TEST_CASE("without a release, the newest known release chooses the layout version") {
  for (const Backend* b : backends()) {
    INFO(b->name << " of " << b->engine);
    if (!b->releases.contains(or_newest("", b->engine)) || b->takes) continue;
    const Backend& chosen = find_backend(b->name, b->engine, "");
    CHECK(&chosen == &find_backend(b->name, b->engine, "", nullptr, or_newest("", b->engine)));
    CHECK(chosen.releases.contains(or_newest("", b->engine)));
  }
  CHECK(find_backend("flashinfer-humming", "vllm", "").layout_version == "1");  // not loaded by any release
}

TEST_CASE("a release of the engine chooses the layout version") {
  Model deepseek, gpt_oss;
  deepseek.family = "deepseek-v4";
  gpt_oss.family = "gpt-oss";
  gpt_oss.pairs = true;
  const auto version = [](const char* name, const char* engine, const Model& model, const char* release) {
    return std::string(find_backend(name, engine, "", &model, release).layout_version);
  };
  CHECK(version("flashinfer-cutlass", "vllm", gpt_oss, "0.28.0") == "v1");
  CHECK(version("flashinfer-cutlass", "vllm", gpt_oss, "0.29.0") == "v2");
  CHECK(version("flashinfer-cutlass", "sglang", deepseek, "0.5.18") == "v1");
  CHECK(version("flashinfer-cutlass", "sglang", deepseek, "0.5.19") == "v2");
  CHECK(version("flashinfer-cutlass", "sglang", gpt_oss, "0.5.18") == "v1-corner");
  CHECK(version("flashinfer-cutlass-mxfp8", "sglang", gpt_oss, "0.5.19") == "3");
  CHECK(version("flashinfer-trtllm", "vllm", deepseek, "0.26.0") == "i256");
  CHECK(version("flashinfer-trtllm", "sglang", deepseek, "0.5.20") == "i128");
  CHECK(version("flashinfer-trtllm", "sglang", deepseek, "0.5.21") == "i128-ones");
  CHECK(version("flashinfer-trtllm", "sglang", gpt_oss, "0.5.23") == "i128-ones");
  Model kimi;
  kimi.family = "kimi-k3";
  CHECK(version("flashinfer-trtllm", "sglang", kimi, "0.5.22") == "i128-ones");
  CHECK(version("flashinfer-trtllm", "sglang", kimi, "0.5.23") == "i128-k3");
  CHECK(version("marlin", "sglang", kimi, "0.5.22") == "1");
  CHECK(version("marlin", "sglang", kimi, "0.5.23") == "k3");
  CHECK(version("marlin", "sglang", deepseek, "0.5.21") == "1");
  CHECK(version("marlin", "sglang", deepseek, "0.5.22") == "i64");
  Model padded = deepseek;
  padded.layers.resize(1);
  padded.layers[0].hidden = 384;
  CHECK(version("marlin", "sglang", padded, "0.5.22") == "i64-corner");
  CHECK(version("marlin", "sglang", padded, "0.5.21") == "1");
  CHECK(version("marlin", "sglang", gpt_oss, "0.5.22") == "1");
  CHECK(version("triton-hopper", "sglang", gpt_oss, "0.5.17") == "b64-pairs");
  Model ct;
  ct.family = ct.method = "compressed-tensors";
  CHECK(version("marlin", "vllm", ct, "0.33.0") == "unpadded");
  CHECK(version("marlin", "vllm", deepseek, "0.33.0") == "1");
  CHECK(version("humming", "vllm", deepseek, "0.32.0") == "2");
  CHECK(version("humming", "sglang", deepseek, "0.5.23") == "1");
  CHECK(version("flashinfer-humming", "sglang", gpt_oss, "0.5.19") == "1");
  CHECK_THROWS_AS(version("flashinfer-humming", "sglang", gpt_oss, "0.5.18"), Error);
  CHECK_THROWS_AS(version("humming-w4a8", "vllm", deepseek, "0.32.0"), Error);
  CHECK_THROWS_AS(version("humming-w4a8", "vllm", gpt_oss, "0.33.0"), Error);  // it needs bf16 activations
  CHECK(version("triton-hopper", "sglang", gpt_oss, "0.5.18") == "b64-pairs");
  CHECK(version("triton-hopper", "sglang", gpt_oss, "0.5.19") == "b64");
  CHECK(version("triton-hopper", "sglang", gpt_oss, "0.5.21") == "b64");
  CHECK(version("triton-hopper", "sglang", gpt_oss, "0.5.22") == "c64");
  Model quark;
  quark.family = quark.method = "quark";
  for (const char* release : {"", "0.33.0"}) CHECK_THROWS_AS(version("aiter-a16w4", "vllm", quark, release), Error);
  CHECK(version("aiter-a16w4", "vllm", deepseek, "0.27.1") == "1");
  CHECK(version("aiter-a16w4", "vllm", deepseek, "0.28.0") == "2");
  CHECK(version("aiter-a16w4", "vllm", gpt_oss, "0.33.0") == "1");
  CHECK(version("aiter-a16w4", "sglang", deepseek, "0.5.23") == "2");
  CHECK(version("aiter-a16w4", "sglang", gpt_oss, "0.5.23") == "1-ones");
  CHECK(version("aiter-a16w4", "sglang", kimi, "0.5.22") == "1-ones");
  CHECK(version("aiter-a16w4", "sglang", kimi, "0.5.23") == "1-k3");
  CHECK(version("aiter-a16w4", "sglang", deepseek, "0.5.18") == "1");
  CHECK(version("aiter-w4a4", "vllm", deepseek, "0.31.0") == "1");
  CHECK(version("aiter-w4a4", "vllm", deepseek, "0.33.0") == "2");
  CHECK(version("aiter-w4a4", "vllm", gpt_oss, "0.31.0") == "3");
  for (const auto& [name, before] :
       {std::pair("aiter-w4a4", "0.27.1"), {"flashinfer-cutlass-mxfp8", "0.27.1"}, {"vllm-cpu", "0.29.0"}}) {
    INFO(name);
    CHECK_NOTHROW(version(name, "vllm", gpt_oss, "0.26.0"));
    CHECK_THROWS_AS(version(name, "vllm", deepseek, before), Error);
    CHECK_NOTHROW(version(name, "vllm", deepseek, "0.30.0"));
  }
  CHECK(version("aiter-w4a4", "vllm", quark, "0.26.0") == "1");
  CHECK(version("aiter-w4a4", "vllm", gpt_oss, "0.33.0") == "4");
  CHECK_THROWS_AS(version("deepgemm", "vllm", gpt_oss, "0.33.0"), Error);
}

TEST_CASE("a layout version that a release does not load is refused with those that it loads") {
  const auto message = [](const char* name, const char* engine, const char* version, const char* release) {
    return said_by([&] { find_backend(name, engine, version, nullptr, release); });
  };
  CHECK(message("flashinfer-cutlass", "vllm", "v1", "0.33.0") ==
        "vllm 0.33.0 does not load layout version v1 of flashinfer-cutlass, but v2");
  CHECK(message("flashinfer-humming", "vllm", "", "0.33.0") == "vllm 0.33.0 has no backend flashinfer-humming");
  CHECK(message("triton-hopper", "vllm", "c", "0.26.0") == "");  // larger than in other sets, but all releases read it
}

TEST_CASE("names, engines and versions that are not there are listed") {
  const auto message = [](const char* name, const char* engine, const char* version) {
    return said_by([&] { find_backend(name, engine, version); });
  };
  CHECK(message("marlin9", "vllm", "").find("no backend 'marlin9'") == 0);
  CHECK(message("marlin", "transformers", "") ==
        "backend marlin does not exist for engine 'transformers', only for vllm, sglang");
  CHECK(message("flashinfer-trtllm", "vllm", "v1") ==
        "backend flashinfer-trtllm of vllm has no layout version 'v1', but i128, i256");
}
