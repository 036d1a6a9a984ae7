// triton_kernels on SM90: vLLM's and SGLang's choice for GPT-OSS there. Rows stay as loaded, biases become F32. The
// engine's tensors are transposed views inside triton_kernels objects, which a loader builds from `view` and `triton`
// in the manifest.
//
// Three generations (layout versions a, b, c) differ in storage padding only. Version a is triton 3.5: vLLM up to 0.16
// and from May 2026. Version b is triton 3.6 and 3.7, version c is 3.8. Every release reads c, because kernels take
// strides from the tensor. But c is larger (0.5 GiB for GPT-OSS 120B), so the default for vLLM is a. Scales are padded
// with zeros to four groups, as in vLLM from #47910 on: kernels up to 3.7 read tiles of four without a mask. The
// engines pad intermediate to 64 and never pad hidden. Kernels of 3.5.1 and 3.7 drop the last 32 columns of any matrix
// whose columns are no multiple of 64.
//
// From 0.5.17 on SGLang fills its scale buffers with 0x7F (1.0). From 0.5.19 on it also pads scales to four groups with
// 0x7F (b64 and c64); b64-pairs has the package's own pad to two groups. The sglang-kernel of 0.5.17 to 0.5.21 includes
// triton_kernels of generation b, that of 0.5.22 generation c.
//
// Source: triton_kernels 3.5.1 and 3.6.0 run on these bytes on an H200. vLLM 0.26.0 and SGLang b26729f22 were read.
// SGLang's own conversion of 0.5.17 to 0.5.23 was run on a CPU, each with the required triton_kernels.
#include "src/backends/registry.h"
#include "src/backends/triton.h"

namespace mxfp4 {

namespace {

template <class L>
Dims triton_hopper_value_shape(int64_t n, int64_t k) {
  const Shape s = storage<L>({n, k / 2});
  return {s.n / 4, s.b * 4};
}
template <class L>
Dims swizzled_shape(int64_t n, int64_t k) {
  const Shape s = storage<L>({n, k / group});
  return {s.n / 32, s.b * 32};
}

Json triton_hopper_value_object(int64_t experts, Shape padded) {
  Json j = triton_object("HopperMXValueLayout", experts, padded.b * 2, padded.n);
  j["mma_version"] = 3;
  return j;
}
template <int groups>
Json triton_hopper_scale_object(int64_t experts, Shape padded) {
  Json j = triton_object("HopperMXScaleLayout", experts, round_up(padded.b, groups), padded.n);
  j["num_warps"] = 8;
  return j;
}

template <class L>
Parameter values() {
  return {.layout = L{},
          .shape = triton_hopper_value_shape<L>,
          .view = u8_transposed,
          .object = triton_hopper_value_object};
}
/// groups: the engine rounds the tensor's columns up to a multiple of this number of groups.
template <class L, int groups = 4>
Parameter swizzled() {
  return {
      .layout = L{}, .shape = swizzled_shape<L>, .view = u8_transposed, .object = triton_hopper_scale_object<groups>};
}

struct Version {
  const char* name;
  Parameter codes, scales;
  const char* triton;
};

std::vector<Version> versions() {
  const Parameter a = values<TritonHopperCodesA>(), b = values<TritonHopperCodesB>(), c = values<TritonHopperCodesC>();
  const Parameter scales = swizzled<TritonHopperScalesW8>();
  return {{"a", a, scales, "3.5 to 3.7"}, {"b", b, scales, "3.5 to 3.7"}, {"c", c, scales, "3.5 on"}};
}

Backend triton_hopper_backend(const Version& v, const Engine& engine) {
  return {.name = "triton-hopper",
          .engine = engine.name,
          .layout_version = v.name,
          .gpu = "SM90",
          .summary = "triton_kernels, bf16 activations",
          .multiple = {1, 64},
          .kernel = &kernel_format(fmt::format("triton-hopper-{}", v.name)),
          .w13_order = loaded_order,
          .parameters = both(*engine.names, v.codes, v.scales, f32_bias()),
          .libraries = {{"triton_kernels", v.triton, "3.5.1 and 3.6.0 run on these bytes"}},
          .requires_ = {}};
}

/// A generation with SGLang's padding of scales. scale_columns: groups are padded to a multiple of these as the rows'
/// pads are.
Backend sglang_64(const Version& v, const char* name, int64_t scale_columns, Range releases) {
  Backend b = triton_hopper_backend(v, engine::sglang);
  b.layout_version = name;
  for (Role role : roles) {
    Parameter& scales = b.parameters[size_t(role)][size_t(Part::scales)];
    scales.pad = {.row = 0x7F, .column = 0x7F, .storage = 0x00};
    scales.columns = scale_columns;
  }
  b.releases = releases;
  b.tested = "converter bytes equal";
  return b;
}

std::vector<Backend> sglang_triton_hopper() {
  const std::vector<Version> all = versions();
  const Version &b = all[1], &c = all[2];
  const Version pairs = {"b-pairs", b.codes, swizzled<TritonHopperScalesW8Pairs, 1>(), b.triton};
  std::vector<Backend> out = {sglang_64(b, "b64", 4, {"0.5.19", "0.5.21"}), sglang_64(c, "c64", 4, {"0.5.19", ""}),
                              sglang_64(pairs, "b64-pairs", 1, {"0.5.11", "0.5.18"})};
  for (Backend& b : out) b.requires_ = {{"moe_runner_backend", "triton_kernel"}};
  return out;
}

std::vector<Backend> vllm_triton_hopper() {
  std::vector<Backend> out;
  for (const Version& v : versions()) {  // a first: the engine's own form, and the smallest
    out.push_back(triton_hopper_backend(v, engine::vllm));
    out.back().releases = {"0.26.0", ""};
    out.back().requires_ = vllm_triton_settings();
  }
  return out;
}

std::vector<Backend> all() {
  std::vector<Backend> out;
  for (const auto& rows : {vllm_triton_hopper(), sglang_triton_hopper()})
    out.insert(out.end(), rows.begin(), rows.end());
  return out;
}

}  // namespace

Backends triton_hopper = all();

}  // namespace mxfp4
