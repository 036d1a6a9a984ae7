// triton_kernels on SM90: vLLM's and SGLang's choice for GPT-OSS there, and all that transformers has. Rows stay as
// loaded, biases become F32. The engine's tensors are transposed views inside triton_kernels objects, which a loader
// builds from `view` and `triton` in the manifest.
//
// Three generations (layout versions a, b, c) differ in storage padding only: a is triton 3.5 (vLLM to 0.16 and from
// May 2026, the Hub kernels of transformers), b is 3.6 and 3.7, c is 3.8. Every release reads c, since kernels take
// strides from the tensor, so c is the default. Scales are padded with zeros to four groups as vLLM does since #47910:
// kernels up to 3.7 read tiles of four without a mask. "-w4" is for kernels of 4 warps instead of 8. vLLM pads
// intermediate to 64, SGLang to 32, transformers nothing; hidden is never padded. Kernels of 3.5.1 and 3.7 drop the
// last 32 columns of a matrix whose columns are no multiple of 64, whoever packed it. transformers keeps scales
// strided: the canonical bytes, seen transposed.
// Source: triton_kernels 3.5.1 and 3.6.0 run on these bytes on an H200; vLLM 0.26.0, SGLang b26729f22, transformers'
// integrations/mxfp4.py read.
#include "src/backends/registry.h"
#include "src/backends/triton.h"

namespace mxfp4 {

namespace {

template <class L>
Dims value_shape(int64_t n, int64_t k) {
  const Shape s = storage<L>({n, k / 2});
  return {s.n / 4, s.b * 4};
}
template <class L>
Dims swizzled_shape(int64_t n, int64_t k) {
  const Shape s = storage<L>({n, k / group});
  return {s.n / 32, s.b * 32};
}

Json value_object(int64_t experts, Shape padded) {
  Json j = triton_object("HopperMXValueLayout", experts, padded.b * 2, padded.n);
  j["mma_version"] = 3;
  return j;
}
template <int warps>
Json scale_object(int64_t experts, Shape padded) {
  Json j = triton_object("HopperMXScaleLayout", experts, round_up(padded.b, 4), padded.n);
  j["num_warps"] = warps;
  return j;
}
Json strided_object(int64_t experts, Shape padded) {
  return triton_object("StridedLayout", experts, padded.b, padded.n);
}

template <class L>
Parameter values() {
  return {.layout = L{}, .shape = value_shape<L>, .view = u8_transposed, .object = value_object};
}
template <class L, int warps>
Parameter swizzled() {
  return {.layout = L{}, .shape = swizzled_shape<L>, .view = u8_transposed, .object = scale_object<warps>};
}

struct Version {
  const char* name;
  Parameter codes, scales;
  const char* triton;
};

std::vector<Version> versions() {
  const Parameter a = values<TritonHopperCodesA>(), b = values<TritonHopperCodesB>(), c = values<TritonHopperCodesC>();
  const Parameter w8 = swizzled<TritonHopperScalesW8, 8>(), w4 = swizzled<TritonHopperScalesW4, 4>();
  return {{"c", c, w8, "3.5 on"},    {"b", b, w8, "3.5 to 3.7"},    {"a", a, w8, "3.5 to 3.7"},
          {"c-w4", c, w4, "3.5 on"}, {"b-w4", b, w4, "3.5 to 3.7"}, {"a-w4", a, w4, "3.5 to 3.7"}};
}

Backend backend(const Version& v, const char* engine, const Names& names, int64_t intermediate_multiple) {
  return {.name = "triton-hopper",
          .engine = engine,
          .layout_version = v.name,
          .gpu = "SM90",
          .summary = "triton_kernels, bf16 activations",
          .multiple = {1, intermediate_multiple},
          .kernel = &kernel_format(fmt::format("triton-hopper-{}", v.name)),
          .w13_order = loaded_order,
          .parameters = both(names, v.codes, v.scales, f32_bias()),
          .fits = {{"triton_kernels", v.triton, "3.5.1 and 3.6.0 run on these bytes"}},
          .requires_ = {}};
}

std::vector<Backend> all() {
  std::vector<Backend> out;
  for (const Version& v : versions()) {
    Backend b = backend(v, "vllm", vllm_names, 64);
    b.fits.push_back({"vllm", "0.26.0 on", "sources read"});
    b.requires_ = vllm_triton_settings();
    out.push_back(b);
  }
  for (const Version& v : versions()) {
    Backend b = backend(v, "sglang", sglang_names, 32);
    b.fits.push_back({"sglang", "0.5.11 to 0.5.17", "sources read"});
    b.requires_ = {{"moe_runner_backend", "triton_kernel"}};
    out.push_back(b);
  }
  const Parameter strided = {.shape = scale_rows, .view = u8_transposed, .object = strided_object};
  for (Version v : versions()) {
    if (std::string_view(v.name).ends_with("w4")) continue;
    v.scales = strided;
    out.push_back(backend(v, "transformers", vllm_names, 1));
    out.back().kernel = &kernel_format(fmt::format("triton-hopper-{}-strided", v.name));
  }
  return out;
}

}  // namespace

Backends triton_hopper = all();

}  // namespace mxfp4
