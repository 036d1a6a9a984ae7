// Each engine's own order of preference for the kernels that run on a GPU, from the engine's sources.
//
// vLLM: fused_moe/oracle/mxfp4.py has two orders. The order for GPT-OSS serves GPT-OSS and Quark; the order for
// DeepSeek-V4 serves all models that load by Mxfp4MoEMethod. Without a request for quantised activations it drops
// kernels that quantise them. SGLang: arg_groups/model_overrides has a file for each model.
#include "src/backends/select.h"

namespace mxfp4 {

namespace {

constexpr const char* blackwell = "sm100 sm103 sm107";
constexpr const char* older = "sm75 sm80 sm86 sm87 sm89";
constexpr const char* consumer = "sm120 sm121";
constexpr const char* from_sm100 = "sm100 sm103 sm107 sm120 sm121";
constexpr const char* every_cuda = "sm75 sm80 sm86 sm87 sm89 sm90 sm100 sm103 sm107 sm120 sm121";
constexpr const char* deepseek = "deepseek-v4 deepseek-v4.1";
/// The model families that vLLM loads by Mxfp4MoEMethod.
constexpr const char* mxfp4_method = "deepseek-v4 deepseek-v4.1 kimi-k3 mimo ling";

constexpr const char* oracle = "fused_moe/oracle/mxfp4.py";
constexpr const char* ct = "compressed_tensors_moe_w4a4_mxfp4.py";
constexpr const char* inc = "inc/schemes/inc_mxfp4_moe.py";
constexpr const char* quark = "quark/quark_moe.py";
constexpr const char* sgl_gpt_oss = "model_overrides/gpt_oss.py";
constexpr const char* sgl_deepseek = "model_overrides/deepseek_v4.py";
constexpr const char* sgl_ling = "model_overrides/bailing_moe_v3.py";
constexpr const char* sgl_marlin = "quantization/mxfp4_marlin_moe.py";

constexpr const char* no_a2a = "if moe_a2a_backend is none";
constexpr const char* aiter = "if VLLM_ROCM_USE_AITER=1";
constexpr const char* emulates = "which emulates there";
constexpr const char* no_quark = "if amd-quark, which emulates, is not installed";

constexpr Rule rules_of_vllm[] = {
    {"gpt-oss", blackwell, "flashinfer-trtllm triton-blackwell marlin", oracle},
    {"gpt-oss", "sm90", "triton-hopper flashinfer-cutlass marlin", oracle, {"0.26.0", "0.31.0"}},
    {"gpt-oss", "sm90", "triton-hopper flashinfer-cutlass humming marlin", oracle, {"0.32.0", ""}},
    {"gpt-oss", consumer, "marlin", oracle, {"0.26.0", "0.31.0"}},
    {"gpt-oss", consumer, "marlin triton-blackwell", oracle},
    {"gpt-oss", older, "marlin", oracle},
    {"gpt-oss", "gfx950", "aiter-a16w4 aiter-triton triton-rocm", oracle, {"0.30.0", ""}, aiter},
    {"gpt-oss", "gfx950", "aiter-a16w4 triton-rocm", oracle, {}, aiter},
    {"gpt-oss", "gfx942", "aiter-triton triton-rocm", oracle, {"0.30.0", ""}, aiter},
    {"gpt-oss", "gfx942", "triton-rocm", oracle},
    {deepseek, "sm90", "humming-w4a8 humming marlin", oracle, {"0.33.0", ""}},
    {mxfp4_method, "sm90", "humming marlin", oracle, {"0.32.0", ""}},
    {mxfp4_method, "sm90", "marlin", oracle, {"0.26.0", "0.31.0"}},
    {mxfp4_method, blackwell, "flashinfer-trtllm deepgemm marlin", oracle},
    {mxfp4_method, consumer, "deepgemm marlin", oracle},
    {mxfp4_method, older, "marlin", oracle},
    {deepseek, "gfx950", "aiter-a16w4 triton-rocm", oracle, {}, aiter},
    {deepseek, "gfx942", "triton-rocm", oracle},
    {"kimi-k3", "gfx950", "aiter-a16w4", oracle, {"0.28.0", ""}, aiter},
    {"mimo ling", "gfx950", "aiter-a16w4", oracle, {}, aiter},
    {"kimi-k3 mimo ling", "gfx942", "canonical", oracle, {"0.28.0", ""}, "which emulates if amd-quark is installed"},
    {"quark", blackwell, "cutlass-mxfp4 flashinfer-trtllm marlin", quark, {"0.32.0", ""}},
    {"quark", consumer, "cutlass-mxfp4 marlin", quark, {"0.32.0", ""}},
    {"quark", "sm90", "flashinfer-cutlass humming marlin", quark, {"0.32.0", ""}, no_quark},
    {"quark", older, "marlin", quark, {"0.32.0", ""}, no_quark},
    {"quark", "gfx950", "aiter-w4a4 aiter-a16w4 aiter-triton", quark, {"0.32.0", ""}, aiter},
    {"quark", "gfx942", "aiter-triton", quark, {"0.32.0", ""}, aiter},
    {"quark", every_cuda, "canonical", quark, {"0.26.0", "0.31.0"}, emulates},
    {"quark", "gfx942", "canonical", quark, {"0.26.0", "0.31.0"}, emulates},
    {"muse-spark", every_cuda, "none", "models/muse_spark/nvidia/model.py", {}, "which serves NVFP4 alone"},
    {"muse-spark", "gfx950", "aiter-w4a4", "models/muse_spark/amd", {"0.33.0", ""}, aiter},
    {"auto-round", from_sm100, "cutlass-mxfp4", inc, {"0.33.0", ""}},
    {"auto-round", every_cuda, "marlin", inc, {"0.33.0", ""}},
    {"", from_sm100, "cutlass-mxfp4", ct},
    {"", every_cuda, "marlin", ct},
    {"compressed-tensors auto-round", "gfx950", "marlin", ct},
    {"fused mlx modelopt quark", "gfx950", "aiter-w4a4", quark},
    {"", "cpu", "vllm-cpu", oracle},
};

constexpr Rule rules_of_sglang[] = {
    {"gpt-oss", blackwell, "flashinfer-trtllm", sgl_gpt_oss},
    {"gpt-oss", consumer, "flashinfer-cutlass-mxfp8", sgl_gpt_oss},
    {"gpt-oss", "sm90", "triton-hopper", sgl_gpt_oss, {}, "if triton_kernels is installed and ep_size is 1"},
    {"gpt-oss", older, "canonical", sgl_gpt_oss, {}, "triton_kernels; its Marlin raises below SM90"},
    {"gpt-oss", "gfx950", "aiter-a16w4", sgl_gpt_oss, {}, "if SGLANG_USE_AITER=1"},
    {"gpt-oss", "gfx942", "none", "quantization/mxfp4.py"},
    {deepseek, "sm90", "flashinfer-cutlass marlin", sgl_deepseek, {"0.5.19", ""}, no_a2a},
    {deepseek, blackwell, "flashinfer-trtllm", sgl_deepseek, {"0.5.19", ""}, no_a2a},
    {deepseek, consumer, "flashinfer-cutlass-mxfp8 marlin", sgl_deepseek},
    {"ling", "sm90", "flashinfer-cutlass marlin", sgl_ling, {"0.5.21", ""}, no_a2a},
    {"ling", blackwell, "flashinfer-trtllm", sgl_ling, {"0.5.21", ""}, no_a2a},
    {"ling", consumer, "flashinfer-cutlass-mxfp8 marlin", sgl_ling, {"0.5.21", ""}, no_a2a},
    {"mimo", blackwell, "flashinfer-trtllm", "model_overrides/mimo_v2.py", {"0.5.22", ""}},
    {"mimo", "sm90", "marlin", "model_overrides/mimo_v2.py", {"0.5.22", ""}},
    {"kimi-k3", blackwell, "flashinfer-trtllm", "model_overrides/kimi_k3.py"},
    {"auto-round", every_cuda, "none", "quantization/auto_round.py", {}, "which reads integers only"},
    {"", "sm90 sm120 sm121", "unset marlin", sgl_marlin},
    {"", older, "unset", sgl_marlin, {}, "which raises below SM90"},
    {"", blackwell, "unset flashinfer-trtllm", "quantization/mxfp4_flashinfer_trtllm_moe.py"},
    {"", "gfx950", "aiter-a16w4", "quantization/mxfp4.py", {}, "if SGLANG_USE_AITER=1"},
};

}  // namespace

std::span<const Rule> vllm_rules() { return rules_of_vllm; }
std::span<const Rule> sglang_rules() { return rules_of_sglang; }

}  // namespace mxfp4
