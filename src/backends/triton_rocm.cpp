// triton_kernels on ROCm. vLLM uses them for GPT-OSS without AITER, and for DeepSeek-V4 if AITER's own kernel is not
// available. Codes and rows stay as loaded, viewed transposed inside triton_kernels objects. Biases become F32; both
// sizes are padded to 256 with zeros. vLLM's kernel on AITER's Triton (aiter-triton) reads the same tensors from 0.30.0
// on. The rows of models in halves are first ordered as pairs, except for Quark's models.
//
// Scales differ. On gfx950 they are swizzled (layout version cdna4) if vLLM's tensor-parallel size is at most 2; expert
// parallelism does not change this size. Otherwise they are strided: in rows with triton_kernels before 3.8 (strided),
// with the groups outermost with 3.8 (transposed). vLLM's builds for ROCm have 3.8 from 0.31.0 on. From then on gfx942
// pads models in halves to 128 (transposed-128).
// Source: vLLM 0.26.0 and 0.30.0 to 0.33.0 (_swizzle_mxfp4, mxfp4_round_up_hidden_size_and_intermediate_size), read.
// The pin in cmake/external_projects/triton_kernels.cmake of 0.33.0, read. Their conversions were run on a CPU with
// triton_kernels 3.5.1 and 3.8, not on a GPU.
#include "src/backends/registry.h"
#include "src/backends/triton.h"

namespace mxfp4 {

namespace {

Dims cdna4_shape(int64_t n, int64_t k) { return {n / 32, k}; }
Dims groups_outermost(int64_t n, int64_t k) { return {k / group, n}; }

Json cdna4_object(int64_t experts, Shape padded) {
  return triton_object("CDNA4MXScaleLayout", experts, padded.b, padded.n);
}

/// vLLM has no SiTU for triton_kernels.
bool is_run(const Model& m) { return m.family != "kimi-k3"; }
bool is_run_in_halves(const Model& m) { return has_halves(m) && is_run(m); }

struct Form {
  const char *layout_version, *gpu, *kernel;
  Parameter scales;
  const char* triton;  // versions of triton_kernels
  Range releases;
};

Backend row(const Form& form) {
  return {.name = "triton-rocm",
          .engine = "vllm",
          .layout_version = form.layout_version,
          .gpu = form.gpu,
          .summary = "triton_kernels, bf16 activations",
          .multiple = {256, 256},
          .kernel = &kernel_format(form.kernel),
          .w13_order = loaded_order,
          .parameters = both(vllm_names, {.shape = code_rows, .view = u8_transposed, .object = strided_codes_object},
                             form.scales, f32_bias()),
          .releases = form.releases,
          .tested = "converter bytes equal (0.26.0, 0.30.0 to 0.33.0)",
          .libraries = {{"triton_kernels", form.triton, "converter bytes equal"}},
          .requires_ = vllm_triton_settings(),
          .takes = is_run};
}

Backend cdna4() {
  Backend b = row({"cdna4",
                   "gfx950",
                   "triton-cdna4",
                   {.layout = Cdna4Scales{}, .shape = cdna4_shape, .view = u8_transposed, .object = cdna4_object},
                   "3.5.1 to 3.8",
                   {"0.26.0", ""}});
  b.most_ranks = 2;
  return b;
}

Backend transposed() {
  return row({"transposed",
              "gfx942, gfx950",
              "triton-rocm",
              {.layout = TritonRocmScales{}, .shape = groups_outermost, .object = strided_scales_object},
              "3.8",
              {"0.31.0", ""}});
}

Backend transposed_128() {
  Backend b = transposed();
  b.layout_version = "transposed-128";
  b.gpu = "gfx942";
  b.multiple = {128, 128};
  b.takes = is_run_in_halves;
  return b;
}

Backend strided() {
  return row({"strided",
              "gfx942, gfx950",
              "canonical",
              {.shape = scale_rows, .view = u8_transposed, .object = strided_scales_object},
              "3.5.1",
              {"0.26.0", "0.30.0"}});
}

/// first: release.
Backend by_aiter(Backend b, const char* first) {
  b.name = "aiter-triton";
  b.summary = "AITER's Triton kernel, bf16 activations";
  b.releases.first = first;
  b.takes = is_converted_as_gpt_oss;
  b.requires_ = {{"moe_backend", "aiter_triton_mxfp4_bf16"}, {"VLLM_ROCM_USE_AITER", "1"}};
  return b;
}

/// Rows become pairs, which AITER's kernel wants. kernel: that which reads pairs.
Backend in_halves(Backend b, const char* kernel) {
  b.kernel = &kernel_format(kernel);
  b.takes = [](const Model& m) { return is_not_converted_as_gpt_oss(m) && is_run(m); };
  b.w13_order = gate_up_pairs;
  return b;
}

}  // namespace

Backends triton_rocm = {cdna4(), transposed_128(), transposed(), strided()};
Backends aiter_triton = {
    by_aiter(cdna4(), "0.30.0"),      in_halves(by_aiter(cdna4(), "0.30.0"), "aiter-triton-cdna4"),
    by_aiter(transposed(), "0.31.0"), in_halves(by_aiter(transposed(), "0.31.0"), "aiter-triton"),
    by_aiter(strided(), "0.30.0"),    in_halves(by_aiter(strided(), "0.30.0"), "aiter-triton-strided")};

}  // namespace mxfp4
