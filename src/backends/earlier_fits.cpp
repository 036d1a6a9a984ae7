#include "src/backends/earlier_fits.h"

#include <string_view>

namespace mxfp4 {

namespace {

struct Row {
  std::string_view backend, engine, layout_version;  // "": any; a version's form for 4 warps has the same
  const char *library, *range, *tested;
};

constexpr const char *sources_read = "sources read", *bytes_equal = "converter bytes equal";
constexpr const char* hopper_run = "3.5.1 and 3.6.0 run on these bytes";
constexpr const char* cutlass_v1 = "0.6.10 to 0.6.15.post1, 0.6.16.post3, 0.6.16.post4, 0.6.17";
constexpr const char* cutlass_v2 = "0.6.16 to 0.6.16.post2, 0.6.18 on";

/// The fits in outputs of format version 1.
constexpr Row rows[] = {
    {"aiter-a16w4", "vllm", "1", "vllm", "0.26.0 on", sources_read},
    {"aiter-a16w4", "vllm", "1", "aiter", "e404860 (2026-08-22)", bytes_equal},
    {"aiter-a16w4", "sglang", "1", "sglang", "0.5.16, 0.5.17", sources_read},
    {"aiter-a16w4", "sglang", "1", "aiter", "e404860 (2026-08-22)", bytes_equal},
    {"aiter-w4a4", "vllm", "1", "vllm", "0.26.0 on", sources_read},
    {"aiter-w4a4", "vllm", "1", "aiter", "e404860 (2026-08-22)", bytes_equal},
    {"aiter-w4a4", "sglang", "1", "sglang", "0.5.16, 0.5.17", sources_read},
    {"aiter-w4a4", "sglang", "1", "aiter", "e404860 (2026-08-22)", bytes_equal},
    {"deepgemm", "vllm", "1", "vllm", "0.26.0 on", sources_read},
    {"deepgemm", "vllm", "1", "deep_gemm", "54e2261 (2026-06-23)", bytes_equal},
    {"deepgemm", "sglang", "1", "sglang", "0.5.16, 0.5.17", sources_read},
    {"deepgemm", "sglang", "1", "deep_gemm", "54e2261 (2026-06-23)", bytes_equal},
    {"deepgemm-mega", "vllm", "1", "vllm", "0.26.0 on", sources_read},
    {"deepgemm-mega", "vllm", "1", "deep_gemm", "54e2261 (2026-06-23)", bytes_equal},
    {"deepgemm-mega", "sglang", "1", "sglang", "0.5.16, 0.5.17", sources_read},
    {"deepgemm-mega", "sglang", "1", "deep_gemm", "54e2261 (2026-06-23)", bytes_equal},
    {"flashinfer-cutedsl", "", "1", "flashinfer", "0.6.18", "description read"},
    {"flashinfer-cutlass", "vllm", "v1", "vllm", "0.26.0 (GPT-OSS only) to 0.27.1", sources_read},
    {"flashinfer-cutlass", "vllm", "v1", "flashinfer", cutlass_v1, bytes_equal},
    {"flashinfer-cutlass", "sglang", "v1", "sglang", "0.5.11 to 0.5.17", sources_read},
    {"flashinfer-cutlass", "sglang", "v1", "flashinfer", cutlass_v1, bytes_equal},
    {"flashinfer-cutlass", "vllm", "v2", "vllm", "newer than 0.27.1", sources_read},
    {"flashinfer-cutlass", "vllm", "v2", "flashinfer", cutlass_v2, bytes_equal},
    {"flashinfer-cutlass", "sglang", "v2", "sglang", "0.5.20 on", sources_read},
    {"flashinfer-cutlass", "sglang", "v2", "flashinfer", cutlass_v2, bytes_equal},
    {"flashinfer-cutlass-mxfp8", "vllm", "1", "vllm", "0.26.0 to 0.27.1", sources_read},
    {"flashinfer-cutlass-mxfp8", "vllm", "1", "flashinfer", "0.6.10 on", bytes_equal},
    {"flashinfer-cutlass-mxfp8", "sglang", "1", "sglang", "0.5.16, 0.5.17", sources_read},
    {"flashinfer-cutlass-mxfp8", "sglang", "1", "flashinfer", "0.6.11 on", bytes_equal},
    {"flashinfer-humming", "", "1", "flashinfer", "0.6.18 on", bytes_equal},
    {"flashinfer-trtllm", "vllm", "i128", "vllm", "0.27.1 on", sources_read},
    {"flashinfer-trtllm", "vllm", "i128", "flashinfer", "0.6.10 on", bytes_equal},
    {"flashinfer-trtllm", "sglang", "i128", "sglang", "0.5.16, 0.5.17", sources_read},
    {"flashinfer-trtllm", "sglang", "i128", "flashinfer", "0.6.11 on", bytes_equal},
    {"flashinfer-trtllm", "vllm", "i256", "vllm", "to 0.26.0", sources_read},
    {"flashinfer-trtllm", "vllm", "i256", "flashinfer", "0.6.10 on", bytes_equal},
    {"flashinfer-trtllm", "sglang", "i256", "sglang", "before 0.5.16", sources_read},
    {"flashinfer-trtllm", "sglang", "i256", "flashinfer", "0.6.11 on", bytes_equal},
    {"marlin", "vllm", "1", "vllm", "0.21 to 0.27.1", "converter bytes equal (main of 2026-07-26)"},
    {"marlin", "sglang", "1", "sglang", "0.5.17 on (scale pad byte 0x7F)",
     "converter bytes equal (main of 2026-08-16)"},
    {"marlin-fp8", "vllm", "1", "vllm", "0.21 to 0.27.1", "converter bytes equal (main of 2026-07-26)"},
    {"triton-blackwell", "vllm", "1", "vllm", "0.26.0 on", sources_read},
    {"triton-blackwell", "vllm", "1", "triton_kernels", "3.5 to 3.8", bytes_equal},
    {"triton-blackwell", "sglang", "1", "sglang", "0.5.11 to 0.5.17", sources_read},
    {"triton-blackwell", "sglang", "1", "triton_kernels", "3.5 to 3.8", bytes_equal},
    {"triton-hopper", "", "c", "triton_kernels", "3.5 on", hopper_run},
    {"triton-hopper", "", "b", "triton_kernels", "3.5 to 3.7", hopper_run},
    {"triton-hopper", "", "a", "triton_kernels", "3.5 to 3.7", hopper_run},
    {"triton-hopper", "vllm", "", "vllm", "0.26.0 on", sources_read},
    {"triton-hopper", "sglang", "", "sglang", "0.5.11 to 0.5.17", sources_read},
    {"vllm-cpu", "vllm", "1", "vllm", "0.26.0 on", sources_read},
};

/// The releases in outputs of mxfp4-pack 0.9.0 for models with w13 in halves. For aiter-a16w4: the releases in outputs
/// of candidates of 1.0.0 for Quark's models, which no release converts correctly. In these outputs SGLang's Triton
/// follows the newest triton_kernels from 0.5.18 on.
struct Releases {
  std::string_view engine, backend, layout_version;
  const char *range, *tested = nullptr;  // null: today's
};
constexpr const char* of_newest = "converter bytes equal (0.5.23)";
constexpr Releases of_candidates[] = {
    {"sglang", "triton-hopper", "b", "0.5.11 to 0.5.17"},
    {"sglang", "triton-hopper", "b64", "0.5.11 to 0.5.17", sources_read},
    {"sglang", "triton-hopper", "c", "0.5.18 to 0.5.23"},
    {"sglang", "triton-hopper", "c64", "0.5.18 to 0.5.23", of_newest},
    {"sglang", "triton-hopper", "c64", "0.5.19 to 0.5.23", of_newest},
    {"vllm", "aiter-a16w4", "1", "0.26.0 to 0.27.1"},
    {"vllm", "aiter-a16w4", "2", "0.28.0 to 0.33.0"},
    {"vllm", "aiter-w4a4", "1", "0.26.0 to 0.31.0"},
    {"vllm", "flashinfer-cutlass-mxfp8", "1", "0.26.0 to 0.33.0"},
    {"vllm", "vllm-cpu", "1", "0.26.0 to 0.33.0"},
};

/// A layout version's form for 4 warps fits the same releases as the version.
std::string_view without_warps(std::string_view version) {
  if (version.ends_with("-w4")) version.remove_suffix(3);
  return version;
}

bool is_for(std::string_view row, std::string_view name) { return row.empty() || row == name; }

}  // namespace

std::vector<Fit> earlier_fits(const Backend& b) {
  const std::string_view version = without_warps(b.layout_version);
  std::vector<Fit> fits;
  for (const Row& r : rows)
    if (r.backend == b.name && is_for(r.engine, b.engine) && is_for(r.layout_version, version))
      fits.push_back({r.library, r.range, r.tested});
  return fits;
}

std::vector<std::vector<Fit>> candidates_fits(const Backend& b) {
  std::vector<std::vector<Fit>> list;
  for (const Releases& r : of_candidates) {
    if (r.engine != b.engine || r.backend != b.name || r.layout_version != without_warps(b.layout_version)) continue;
    std::vector<Fit> fits = fits_of(b);
    if (fits.empty() || fits.front().library != b.engine) fits.insert(fits.begin(), {b.engine, "", b.tested});
    fits.front().range = r.range;
    if (r.tested) fits.front().tested = r.tested;
    list.push_back(std::move(fits));
  }
  return list;
}

std::vector<Fit> fits_up_to(const Backend& b, const std::string& newest) {
  std::vector<Fit> fits = fits_of(b);
  if (fits.empty() || fits.front().library != b.engine || !is_version(newest)) return {};
  const Range known = find_engine(b.engine).known, earlier = {b.releases.first, newest.c_str()};
  const bool is_older = compare_versions(newest, *b.releases.last ? b.releases.last : known.last) < 0;
  if (!is_older || compare_versions(newest, known.first) < 0 || is_empty(earlier)) return {};
  fits.front().range = describe(earlier, known);
  return fits;
}

}  // namespace mxfp4
