#include "src/backends/loaders.h"

#include <algorithm>

#include "src/backends/version.h"
#include "src/backends/words.h"

namespace mxfp4 {

namespace {

struct Loader {
  std::string_view engine, backend, layout_version, families;
  const char *since, *tp_sizes;
};

// tests/engines/matrix.py writes these rows, the oldest version first.
const Loader loaders[] = {
    {"sglang", "aiter-a16w4", "1", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "aiter-a16w4", "1-ones", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "flashinfer-cutlass", "file", "gpt-oss", "0.5.17", "1"},
    {"sglang", "flashinfer-cutlass", "v1", "deepseek-v4 gpt-oss", "0.5.17", "1 2"},
    {"sglang", "flashinfer-cutlass", "v1-corner", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "flashinfer-cutlass-mxfp8", "1", "deepseek-v4", "0.5.17", "1 2"},
    {"sglang", "flashinfer-cutlass-mxfp8", "2", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "flashinfer-cutlass-mxfp8", "3", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "flashinfer-trtllm", "i128", "deepseek-v4 gpt-oss", "0.5.17", "1 2"},
    {"sglang", "flashinfer-trtllm", "i128-ones", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "marlin", "1", "deepseek-v4 gpt-oss", "0.5.17", "1 2"},
    {"sglang", "marlin", "file", "deepseek-v4 gpt-oss", "0.5.17", "1"},
    {"sglang", "triton-blackwell", "1", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "triton-hopper", "b64", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "triton-hopper", "b64-pairs", "gpt-oss", "0.5.17", "1 2"},
    {"sglang", "triton-hopper", "file", "gpt-oss", "0.5.17", "1"},
    {"sglang", "flashinfer-cutlass", "v2", "deepseek-v4 gpt-oss", "0.5.19", "1 2"},
    {"sglang", "flashinfer-cutlass", "v2-corner", "gpt-oss", "0.5.19", "1 2"},
    {"sglang", "flashinfer-humming", "1", "deepseek-v4 gpt-oss", "0.5.19", "1 2"},
    {"sglang", "triton-hopper", "c64", "gpt-oss", "0.5.19", "1 2"},
    {"sglang", "humming", "1", "deepseek-v4", "0.5.20", "1 2"},
    {"sglang", "flashinfer-cutlass", "v2", "deepseek-v4.1 ling", "0.5.21", "1 2"},
    {"sglang", "flashinfer-cutlass-mxfp8", "1", "deepseek-v4.1 ling", "0.5.21", "1 2"},
    {"sglang", "flashinfer-humming", "1", "deepseek-v4.1 ling", "0.5.21", "1 2"},
    {"sglang", "flashinfer-trtllm", "i128", "deepseek-v4.1 ling", "0.5.21", "1 2"},
    {"sglang", "flashinfer-trtllm", "i128-ones", "deepseek-v4 deepseek-v4.1 ling", "0.5.21", "1 2"},
    {"sglang", "humming", "1", "deepseek-v4.1 ling", "0.5.21", "1 2"},
    {"sglang", "marlin", "1", "deepseek-v4.1 ling", "0.5.21", "1 2"},
    {"sglang", "aiter-a16w4", "1", "kimi-k3", "0.5.22", "1 2"},
    {"sglang", "aiter-a16w4", "1-ones", "kimi-k3", "0.5.22", "1 2"},
    {"sglang", "deepgemm", "1", "kimi-k3", "0.5.22", "1 2"},
    {"sglang", "flashinfer-trtllm", "i128-ones", "kimi-k3", "0.5.22", "1 2"},
    {"sglang", "marlin", "1", "kimi-k3", "0.5.22", "1 2"},
    {"sglang", "marlin", "i64", "deepseek-v4 deepseek-v4.1 ling", "0.5.22", "1 2"},
    {"sglang", "marlin", "i64-corner", "deepseek-v4 deepseek-v4.1 ling", "0.5.22", "1 2"},
    {"sglang", "aiter-a16w4", "1-k3", "kimi-k3", "0.5.23", "1 2"},
    {"sglang", "flashinfer-cutlass", "file", "deepseek-v4", "0.5.23", "1"},
    {"sglang", "flashinfer-trtllm", "i128-k3", "kimi-k3", "0.5.23", "1 2"},
    {"sglang", "marlin", "k3", "kimi-k3", "0.5.23", "1 2"},
    {"vllm", "aiter-a16w4", "1", "deepseek-v4 gpt-oss", "0.26.0", "1 2"},
    {"vllm", "aiter-w4a4", "3", "gpt-oss", "0.26.0", "1"},
    {"vllm", "cutlass-mxfp4", "1", "compressed-tensors", "0.26.0", "1 2"},
    {"vllm", "deepgemm", "1", "deepseek-v4", "0.26.0", "1 2"},
    {"vllm", "flashinfer-cutlass", "file", "gpt-oss", "0.26.0", "1"},
    {"vllm", "flashinfer-cutlass", "v1", "gpt-oss", "0.26.0", "1 2"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "gpt-oss", "0.26.0", "1 2"},
    {"vllm", "flashinfer-trtllm", "i256", "deepseek-v4 gpt-oss", "0.26.0", "1 2"},
    {"vllm", "marlin", "1", "deepseek-v4 gpt-oss quark", "0.26.0", "1 2"},
    {"vllm", "marlin", "file", "deepseek-v4 gpt-oss", "0.26.0", "1"},
    {"vllm", "marlin-fp8", "1", "deepseek-v4 gpt-oss", "0.26.0", "1 2"},
    {"vllm", "triton-blackwell", "1", "deepseek-v4 gpt-oss", "0.26.0", "1 2"},
    {"vllm", "triton-hopper", "a", "deepseek-v4 gpt-oss", "0.26.0", "1 2"},
    {"vllm", "triton-hopper", "c", "deepseek-v4 gpt-oss", "0.26.0", "1 2"},
    {"vllm", "triton-hopper", "file", "deepseek-v4 gpt-oss", "0.26.0", "1"},
    {"vllm", "triton-rocm", "cdna4", "deepseek-v4 gpt-oss", "0.26.0", "1 2"},
    {"vllm", "triton-rocm", "strided", "deepseek-v4 gpt-oss", "0.26.0", "1 4"},
    {"vllm", "vllm-cpu", "1", "gpt-oss", "0.26.0", "1 2"},
    {"vllm", "aiter-w4a4", "4", "gpt-oss", "0.27.0", "1 2"},
    {"vllm", "deepgemm", "1", "kimi-k3 mimo", "0.27.0", "1 2"},
    {"vllm", "flashinfer-trtllm", "i128", "deepseek-v4 gpt-oss kimi-k3 mimo", "0.27.0", "1 2"},
    {"vllm", "marlin", "1", "kimi-k3 mimo", "0.27.0", "1 2"},
    {"vllm", "marlin-fp8", "1", "kimi-k3 mimo", "0.27.0", "1 2"},
    {"vllm", "triton-blackwell", "1", "kimi-k3 mimo", "0.27.0", "1 2"},
    {"vllm", "triton-hopper", "a", "kimi-k3 mimo", "0.27.0", "1 2"},
    {"vllm", "triton-hopper", "c", "kimi-k3 mimo", "0.27.0", "1 2"},
    {"vllm", "triton-rocm", "cdna4", "mimo", "0.27.0", "1 2"},
    {"vllm", "triton-rocm", "strided", "mimo", "0.27.0", "1 4"},
    {"vllm", "deepgemm", "1", "ling", "0.28.0", "1 2"},
    {"vllm", "flashinfer-cutlass", "file", "deepseek-v4", "0.28.0", "1"},
    {"vllm", "flashinfer-cutlass", "v1", "deepseek-v4 kimi-k3 ling mimo", "0.28.0", "1 2"},
    {"vllm", "flashinfer-trtllm", "i128", "ling", "0.28.0", "1 2"},
    {"vllm", "marlin", "1", "ling", "0.28.0", "1 2"},
    {"vllm", "marlin-fp8", "1", "ling", "0.28.0", "1 2"},
    {"vllm", "triton-blackwell", "1", "ling", "0.28.0", "1 2"},
    {"vllm", "triton-hopper", "a", "ling", "0.28.0", "1 2"},
    {"vllm", "triton-hopper", "c", "ling", "0.28.0", "1 2"},
    {"vllm", "triton-rocm", "cdna4", "ling", "0.28.0", "1 2"},
    {"vllm", "triton-rocm", "strided", "ling", "0.28.0", "1 4"},
    {"vllm", "flashinfer-cutlass", "v2", "deepseek-v4 gpt-oss kimi-k3 ling mimo", "0.29.0", "1 2"},
    {"vllm", "aiter-triton", "cdna4", "deepseek-v4 deepseek-v4.1 gpt-oss ling mimo", "0.30.0", "1 2"},
    {"vllm", "aiter-triton", "strided", "deepseek-v4 deepseek-v4.1 gpt-oss ling mimo", "0.30.0", "1"},
    {"vllm", "deepgemm", "1", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "flashinfer-cutlass", "v2", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "flashinfer-trtllm", "i128", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "marlin", "1", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "marlin-fp8", "1", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "triton-blackwell", "1", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "triton-hopper", "a", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "triton-hopper", "c", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "triton-rocm", "cdna4", "deepseek-v4.1", "0.30.0", "1 2"},
    {"vllm", "triton-rocm", "strided", "deepseek-v4.1", "0.30.0", "1 4"},
    {"vllm", "aiter-a16w4", "2", "deepseek-v4 deepseek-v4.1 ling mimo", "0.31.0", "1 2"},
    {"vllm", "aiter-triton", "transposed", "deepseek-v4 deepseek-v4.1 gpt-oss ling mimo", "0.31.0", "1"},
    {"vllm", "aiter-w4a4", "2", "deepseek-v4 deepseek-v4.1 kimi-k3 ling mimo", "0.31.0", "1 2"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "deepseek-v4 deepseek-v4.1 kimi-k3 ling mimo", "0.31.0", "1 2"},
    {"vllm", "marlin", "unpadded", "compressed-tensors", "0.31.0", "1 2"},
    {"vllm", "triton-rocm", "transposed", "deepseek-v4 deepseek-v4.1 ling mimo", "0.31.0", "4"},
    {"vllm", "triton-rocm", "transposed", "gpt-oss", "0.31.0", "1 4"},
    {"vllm", "triton-rocm", "transposed-128", "deepseek-v4 deepseek-v4.1 ling mimo", "0.31.0", "1 2"},
    {"vllm", "vllm-cpu", "1", "deepseek-v4 deepseek-v4.1 kimi-k3 ling mimo quark", "0.31.0", "1 2"},
    {"vllm", "aiter-triton", "cdna4", "quark", "0.32.0", "1 2"},
    {"vllm", "aiter-triton", "transposed", "quark", "0.32.0", "1 2"},
    {"vllm", "aiter-w4a4", "2", "quark", "0.32.0", "1 2"},
    {"vllm", "humming", "2", "deepseek-v4 deepseek-v4.1 gpt-oss kimi-k3 ling mimo quark", "0.32.0", "1 2"},
    {"vllm", "cutlass-mxfp4", "1", "auto-round", "0.33.0", "1 2"},
    {"vllm", "humming-w4a8", "1", "deepseek-v4 deepseek-v4.1", "0.33.0", "1 2"},
    {"vllm", "marlin", "unpadded", "auto-round", "0.33.0", "1 2"},
};

/// The row of a family (empty: any); null if no loader reads the backend's form. A layout file calls its backend as it
/// likes. Loaders compare a file's canary at each start, so a file without one is not read.
const Loader* row_of(const Backend& b, const std::string& family) {
  const bool file = !b.layout_file.empty();
  if (file && !Json::parse(b.layout_file).contains("canary")) return nullptr;
  const std::string version = file ? "file" : b.layout_version;
  const auto it = std::find_if(std::begin(loaders), std::end(loaders), [&](const Loader& l) {
    return l.engine == b.engine && (file || l.backend == b.name) && l.layout_version == version &&
           (family.empty() || has_word(l.families, family));
  });
  return it == std::end(loaders) ? nullptr : it;
}

}  // namespace

std::string loader_since(const Backend& b, const std::string& family) {
  const Loader* const row = row_of(b, family);
  return row ? row->since : "";
}

bool has_loader(const Backend& b, const std::string& family, const std::string& release) {
  const std::string since = loader_since(b, b.layout_file.empty() ? family : "");
  return !since.empty() && (release.empty() || compare_versions(release, since) >= 0);
}

std::vector<int> tested_tp_sizes(const Backend& b, const std::string& family) {
  std::vector<int> sizes;
  if (const Loader* const row = row_of(b, family))
    for (const std::string& size : words(row->tp_sizes)) sizes.push_back(std::atoi(size.c_str()));
  return sizes;
}

}  // namespace mxfp4
