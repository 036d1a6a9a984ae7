#include "src/backends/loaders.h"

#include <algorithm>

#include "src/backends/version.h"
#include "src/base/log.h"

namespace mxfp4 {

namespace {

struct Loader {
  std::string_view engine, backend, layout_version, family;
  const char* since;
};

// tests/engines/matrix.py writes these rows, the oldest version first.
const Loader loaders[] = {
    {"sglang", "aiter-a16w4", "1", "gpt-oss", "0.5.17"},
    {"sglang", "aiter-a16w4", "1-ones", "gpt-oss", "0.5.17"},
    {"sglang", "flashinfer-cutlass", "file", "gpt-oss", "0.5.17"},
    {"sglang", "flashinfer-cutlass", "v1", "deepseek-v4", "0.5.17"},
    {"sglang", "flashinfer-cutlass", "v1", "gpt-oss", "0.5.17"},
    {"sglang", "flashinfer-cutlass", "v1-corner", "gpt-oss", "0.5.17"},
    {"sglang", "flashinfer-cutlass-mxfp8", "1", "deepseek-v4", "0.5.17"},
    {"sglang", "flashinfer-cutlass-mxfp8", "2", "gpt-oss", "0.5.17"},
    {"sglang", "flashinfer-cutlass-mxfp8", "3", "gpt-oss", "0.5.17"},
    {"sglang", "flashinfer-trtllm", "i128", "deepseek-v4", "0.5.17"},
    {"sglang", "flashinfer-trtllm", "i128", "gpt-oss", "0.5.17"},
    {"sglang", "flashinfer-trtllm", "i128-ones", "gpt-oss", "0.5.17"},
    {"sglang", "marlin", "1", "deepseek-v4", "0.5.17"},
    {"sglang", "marlin", "1", "gpt-oss", "0.5.17"},
    {"sglang", "marlin", "file", "deepseek-v4", "0.5.17"},
    {"sglang", "marlin", "file", "gpt-oss", "0.5.17"},
    {"sglang", "triton-blackwell", "1", "gpt-oss", "0.5.17"},
    {"sglang", "triton-hopper", "b64", "gpt-oss", "0.5.17"},
    {"sglang", "triton-hopper", "b64-pairs", "gpt-oss", "0.5.17"},
    {"sglang", "triton-hopper", "file", "gpt-oss", "0.5.17"},
    {"sglang", "triton-hopper", "c", "gpt-oss", "0.5.18"},
    {"sglang", "flashinfer-cutlass", "v2", "deepseek-v4", "0.5.19"},
    {"sglang", "flashinfer-cutlass", "v2", "gpt-oss", "0.5.19"},
    {"sglang", "flashinfer-cutlass", "v2-corner", "gpt-oss", "0.5.19"},
    {"sglang", "flashinfer-humming", "1", "deepseek-v4", "0.5.19"},
    {"sglang", "flashinfer-humming", "1", "gpt-oss", "0.5.19"},
    {"sglang", "triton-hopper", "c64", "gpt-oss", "0.5.19"},
    {"sglang", "humming", "1", "deepseek-v4", "0.5.20"},
    {"sglang", "flashinfer-cutlass", "v2", "deepseek-v4.1", "0.5.21"},
    {"sglang", "flashinfer-cutlass", "v2", "ling", "0.5.21"},
    {"sglang", "flashinfer-cutlass-mxfp8", "1", "deepseek-v4.1", "0.5.21"},
    {"sglang", "flashinfer-cutlass-mxfp8", "1", "ling", "0.5.21"},
    {"sglang", "flashinfer-humming", "1", "deepseek-v4.1", "0.5.21"},
    {"sglang", "flashinfer-humming", "1", "ling", "0.5.21"},
    {"sglang", "flashinfer-trtllm", "i128", "deepseek-v4.1", "0.5.21"},
    {"sglang", "flashinfer-trtllm", "i128", "ling", "0.5.21"},
    {"sglang", "flashinfer-trtllm", "i128-ones", "deepseek-v4", "0.5.21"},
    {"sglang", "flashinfer-trtllm", "i128-ones", "deepseek-v4.1", "0.5.21"},
    {"sglang", "flashinfer-trtllm", "i128-ones", "ling", "0.5.21"},
    {"sglang", "humming", "1", "deepseek-v4.1", "0.5.21"},
    {"sglang", "humming", "1", "ling", "0.5.21"},
    {"sglang", "marlin", "1", "deepseek-v4.1", "0.5.21"},
    {"sglang", "marlin", "1", "ling", "0.5.21"},
    {"sglang", "aiter-a16w4", "1", "kimi-k3", "0.5.22"},
    {"sglang", "aiter-a16w4", "1-ones", "kimi-k3", "0.5.22"},
    {"sglang", "deepgemm", "1", "kimi-k3", "0.5.22"},
    {"sglang", "flashinfer-trtllm", "i128-ones", "kimi-k3", "0.5.22"},
    {"sglang", "marlin", "1", "kimi-k3", "0.5.22"},
    {"sglang", "marlin", "i64", "deepseek-v4", "0.5.22"},
    {"sglang", "marlin", "i64", "deepseek-v4.1", "0.5.22"},
    {"sglang", "marlin", "i64", "ling", "0.5.22"},
    {"sglang", "marlin", "i64-corner", "deepseek-v4", "0.5.22"},
    {"sglang", "marlin", "i64-corner", "deepseek-v4.1", "0.5.22"},
    {"sglang", "marlin", "i64-corner", "ling", "0.5.22"},
    {"sglang", "aiter-a16w4", "1-k3", "kimi-k3", "0.5.23"},
    {"sglang", "flashinfer-cutlass", "file", "deepseek-v4", "0.5.23"},
    {"sglang", "flashinfer-trtllm", "i128-k3", "kimi-k3", "0.5.23"},
    {"sglang", "marlin", "k3", "kimi-k3", "0.5.23"},
    {"vllm", "aiter-a16w4", "1", "deepseek-v4", "0.26.0"},
    {"vllm", "aiter-a16w4", "1", "gpt-oss", "0.26.0"},
    {"vllm", "aiter-w4a4", "3", "gpt-oss", "0.26.0"},
    {"vllm", "cutlass-mxfp4", "1", "compressed-tensors", "0.26.0"},
    {"vllm", "deepgemm", "1", "deepseek-v4", "0.26.0"},
    {"vllm", "flashinfer-cutlass", "file", "gpt-oss", "0.26.0"},
    {"vllm", "flashinfer-cutlass", "v1", "gpt-oss", "0.26.0"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "gpt-oss", "0.26.0"},
    {"vllm", "flashinfer-trtllm", "i256", "deepseek-v4", "0.26.0"},
    {"vllm", "flashinfer-trtllm", "i256", "gpt-oss", "0.26.0"},
    {"vllm", "marlin", "1", "deepseek-v4", "0.26.0"},
    {"vllm", "marlin", "1", "gpt-oss", "0.26.0"},
    {"vllm", "marlin", "1", "quark", "0.26.0"},
    {"vllm", "marlin", "file", "deepseek-v4", "0.26.0"},
    {"vllm", "marlin", "file", "gpt-oss", "0.26.0"},
    {"vllm", "marlin-fp8", "1", "deepseek-v4", "0.26.0"},
    {"vllm", "marlin-fp8", "1", "gpt-oss", "0.26.0"},
    {"vllm", "triton-blackwell", "1", "deepseek-v4", "0.26.0"},
    {"vllm", "triton-blackwell", "1", "gpt-oss", "0.26.0"},
    {"vllm", "triton-hopper", "a", "deepseek-v4", "0.26.0"},
    {"vllm", "triton-hopper", "a", "gpt-oss", "0.26.0"},
    {"vllm", "triton-hopper", "c", "deepseek-v4", "0.26.0"},
    {"vllm", "triton-hopper", "c", "gpt-oss", "0.26.0"},
    {"vllm", "triton-hopper", "file", "deepseek-v4", "0.26.0"},
    {"vllm", "triton-hopper", "file", "gpt-oss", "0.26.0"},
    {"vllm", "triton-rocm", "cdna4", "deepseek-v4", "0.26.0"},
    {"vllm", "triton-rocm", "cdna4", "gpt-oss", "0.26.0"},
    {"vllm", "triton-rocm", "strided", "deepseek-v4", "0.26.0"},
    {"vllm", "triton-rocm", "strided", "gpt-oss", "0.26.0"},
    {"vllm", "vllm-cpu", "1", "gpt-oss", "0.26.0"},
    {"vllm", "aiter-w4a4", "4", "gpt-oss", "0.27.0"},
    {"vllm", "deepgemm", "1", "kimi-k3", "0.27.0"},
    {"vllm", "deepgemm", "1", "mimo", "0.27.0"},
    {"vllm", "flashinfer-trtllm", "i128", "deepseek-v4", "0.27.0"},
    {"vllm", "flashinfer-trtllm", "i128", "gpt-oss", "0.27.0"},
    {"vllm", "flashinfer-trtllm", "i128", "kimi-k3", "0.27.0"},
    {"vllm", "flashinfer-trtllm", "i128", "mimo", "0.27.0"},
    {"vllm", "marlin", "1", "kimi-k3", "0.27.0"},
    {"vllm", "marlin", "1", "mimo", "0.27.0"},
    {"vllm", "marlin-fp8", "1", "kimi-k3", "0.27.0"},
    {"vllm", "marlin-fp8", "1", "mimo", "0.27.0"},
    {"vllm", "triton-blackwell", "1", "kimi-k3", "0.27.0"},
    {"vllm", "triton-blackwell", "1", "mimo", "0.27.0"},
    {"vllm", "triton-hopper", "a", "kimi-k3", "0.27.0"},
    {"vllm", "triton-hopper", "a", "mimo", "0.27.0"},
    {"vllm", "triton-hopper", "c", "kimi-k3", "0.27.0"},
    {"vllm", "triton-hopper", "c", "mimo", "0.27.0"},
    {"vllm", "triton-rocm", "cdna4", "mimo", "0.27.0"},
    {"vllm", "triton-rocm", "strided", "mimo", "0.27.0"},
    {"vllm", "deepgemm", "1", "ling", "0.28.0"},
    {"vllm", "flashinfer-cutlass", "file", "deepseek-v4", "0.28.0"},
    {"vllm", "flashinfer-cutlass", "v1", "deepseek-v4", "0.28.0"},
    {"vllm", "flashinfer-cutlass", "v1", "kimi-k3", "0.28.0"},
    {"vllm", "flashinfer-cutlass", "v1", "ling", "0.28.0"},
    {"vllm", "flashinfer-cutlass", "v1", "mimo", "0.28.0"},
    {"vllm", "flashinfer-trtllm", "i128", "ling", "0.28.0"},
    {"vllm", "marlin", "1", "ling", "0.28.0"},
    {"vllm", "marlin-fp8", "1", "ling", "0.28.0"},
    {"vllm", "triton-blackwell", "1", "ling", "0.28.0"},
    {"vllm", "triton-hopper", "a", "ling", "0.28.0"},
    {"vllm", "triton-hopper", "c", "ling", "0.28.0"},
    {"vllm", "triton-rocm", "cdna4", "ling", "0.28.0"},
    {"vllm", "triton-rocm", "strided", "ling", "0.28.0"},
    {"vllm", "flashinfer-cutlass", "v2", "deepseek-v4", "0.29.0"},
    {"vllm", "flashinfer-cutlass", "v2", "gpt-oss", "0.29.0"},
    {"vllm", "flashinfer-cutlass", "v2", "kimi-k3", "0.29.0"},
    {"vllm", "flashinfer-cutlass", "v2", "ling", "0.29.0"},
    {"vllm", "flashinfer-cutlass", "v2", "mimo", "0.29.0"},
    {"vllm", "aiter-triton", "cdna4", "deepseek-v4", "0.30.0"},
    {"vllm", "aiter-triton", "cdna4", "deepseek-v4.1", "0.30.0"},
    {"vllm", "aiter-triton", "cdna4", "gpt-oss", "0.30.0"},
    {"vllm", "aiter-triton", "cdna4", "ling", "0.30.0"},
    {"vllm", "aiter-triton", "cdna4", "mimo", "0.30.0"},
    {"vllm", "aiter-triton", "strided", "deepseek-v4", "0.30.0"},
    {"vllm", "aiter-triton", "strided", "deepseek-v4.1", "0.30.0"},
    {"vllm", "aiter-triton", "strided", "gpt-oss", "0.30.0"},
    {"vllm", "aiter-triton", "strided", "ling", "0.30.0"},
    {"vllm", "aiter-triton", "strided", "mimo", "0.30.0"},
    {"vllm", "deepgemm", "1", "deepseek-v4.1", "0.30.0"},
    {"vllm", "flashinfer-cutlass", "v2", "deepseek-v4.1", "0.30.0"},
    {"vllm", "flashinfer-trtllm", "i128", "deepseek-v4.1", "0.30.0"},
    {"vllm", "marlin", "1", "deepseek-v4.1", "0.30.0"},
    {"vllm", "marlin-fp8", "1", "deepseek-v4.1", "0.30.0"},
    {"vllm", "triton-blackwell", "1", "deepseek-v4.1", "0.30.0"},
    {"vllm", "triton-hopper", "a", "deepseek-v4.1", "0.30.0"},
    {"vllm", "triton-hopper", "c", "deepseek-v4.1", "0.30.0"},
    {"vllm", "triton-rocm", "cdna4", "deepseek-v4.1", "0.30.0"},
    {"vllm", "triton-rocm", "strided", "deepseek-v4.1", "0.30.0"},
    {"vllm", "aiter-a16w4", "2", "deepseek-v4", "0.31.0"},
    {"vllm", "aiter-a16w4", "2", "deepseek-v4.1", "0.31.0"},
    {"vllm", "aiter-a16w4", "2", "ling", "0.31.0"},
    {"vllm", "aiter-a16w4", "2", "mimo", "0.31.0"},
    {"vllm", "aiter-triton", "transposed", "deepseek-v4", "0.31.0"},
    {"vllm", "aiter-triton", "transposed", "deepseek-v4.1", "0.31.0"},
    {"vllm", "aiter-triton", "transposed", "gpt-oss", "0.31.0"},
    {"vllm", "aiter-triton", "transposed", "ling", "0.31.0"},
    {"vllm", "aiter-triton", "transposed", "mimo", "0.31.0"},
    {"vllm", "aiter-w4a4", "2", "deepseek-v4", "0.31.0"},
    {"vllm", "aiter-w4a4", "2", "deepseek-v4.1", "0.31.0"},
    {"vllm", "aiter-w4a4", "2", "kimi-k3", "0.31.0"},
    {"vllm", "aiter-w4a4", "2", "ling", "0.31.0"},
    {"vllm", "aiter-w4a4", "2", "mimo", "0.31.0"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "deepseek-v4", "0.31.0"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "deepseek-v4.1", "0.31.0"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "kimi-k3", "0.31.0"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "ling", "0.31.0"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "mimo", "0.31.0"},
    {"vllm", "marlin", "unpadded", "compressed-tensors", "0.31.0"},
    {"vllm", "triton-rocm", "transposed", "deepseek-v4", "0.31.0"},
    {"vllm", "triton-rocm", "transposed", "deepseek-v4.1", "0.31.0"},
    {"vllm", "triton-rocm", "transposed", "gpt-oss", "0.31.0"},
    {"vllm", "triton-rocm", "transposed", "ling", "0.31.0"},
    {"vllm", "triton-rocm", "transposed", "mimo", "0.31.0"},
    {"vllm", "triton-rocm", "transposed-128", "deepseek-v4", "0.31.0"},
    {"vllm", "triton-rocm", "transposed-128", "deepseek-v4.1", "0.31.0"},
    {"vllm", "triton-rocm", "transposed-128", "ling", "0.31.0"},
    {"vllm", "triton-rocm", "transposed-128", "mimo", "0.31.0"},
    {"vllm", "vllm-cpu", "1", "deepseek-v4", "0.31.0"},
    {"vllm", "vllm-cpu", "1", "deepseek-v4.1", "0.31.0"},
    {"vllm", "vllm-cpu", "1", "kimi-k3", "0.31.0"},
    {"vllm", "vllm-cpu", "1", "ling", "0.31.0"},
    {"vllm", "vllm-cpu", "1", "mimo", "0.31.0"},
    {"vllm", "vllm-cpu", "1", "quark", "0.31.0"},
    {"vllm", "aiter-triton", "cdna4", "quark", "0.32.0"},
    {"vllm", "aiter-triton", "transposed", "quark", "0.32.0"},
    {"vllm", "aiter-w4a4", "2", "quark", "0.32.0"},
    {"vllm", "humming", "2", "deepseek-v4", "0.32.0"},
    {"vllm", "humming", "2", "deepseek-v4.1", "0.32.0"},
    {"vllm", "humming", "2", "gpt-oss", "0.32.0"},
    {"vllm", "humming", "2", "kimi-k3", "0.32.0"},
    {"vllm", "humming", "2", "ling", "0.32.0"},
    {"vllm", "humming", "2", "mimo", "0.32.0"},
    {"vllm", "humming", "2", "quark", "0.32.0"},
    {"vllm", "humming-w4a8", "1", "deepseek-v4", "0.33.0"},
    {"vllm", "humming-w4a8", "1", "deepseek-v4.1", "0.33.0"},
};

bool is_engine(std::string_view name) {
  return std::any_of(std::begin(engines), std::end(engines), [&](const Engine& e) { return name == e.name; });
}

}  // namespace

std::string loader_since(const Backend& backend, const std::string& family) {
  const bool file = !backend.layout_file.empty();  // which calls its backend as it likes, and must have a canary
  if (file && !Json::parse(backend.layout_file).contains("canary")) return {};
  for (const Loader& l : loaders)
    if (l.engine == backend.engine && (file || l.backend == backend.name) &&
        l.layout_version == (file ? "file" : backend.layout_version) && (family.empty() || l.family == family))
      return l.since;
  return {};
}

bool has_loader(const Backend& backend, const std::string& family, const std::string& release) {
  const std::string since = loader_since(backend, family);
  return !since.empty() && (release.empty() || compare_versions(release, since) >= 0);
}

void check_loader(const Backend& backend, const Model& model, const std::string& release, bool required) {
  if (required && !release.empty())  // a layout file's engine may be none that is known here
    if (const char* const last = find_engine(backend.engine).known.last; compare_versions(release, last) > 0)
      fail(ErrorKind::usage, "no loader was shown to read anything in {} {}; {} is the last that is known here",
           backend.engine, release, last);
  if (has_loader(backend, model.family, release)) return;
  const std::string since = loader_since(backend, model.family);
  const std::string line = fmt::format(
      "no loader{} is known to read {} (layout version {}) of {}{}; 'mxfp4-pack backends' lists loaders",
      is_engine(backend.engine) ? fmt::format(" of {}", backend.engine) : "", backend.name, backend.layout_version,
      model.family, since.empty() ? "" : fmt::format(" in {}, but from {} on", release, since));
  if (required) fail(ErrorKind::usage, "{}", line);
  warn(line);
}

}  // namespace mxfp4
