// Computes MoE layers in a server: the kernels of verify, on packed tensors in GPU memory and on the caller's stream.
#include <limits>

#include "kernels/moe/cuda/moe_forward.h"
#include "src/library/set.h"
#include "src/plan/plan.h"
#include "src/verify/kernel_config.h"

struct mxfp4_pack_moe {
  std::unique_ptr<mxfp4::ResidentMoe> layer;
};

namespace mxfp4 {

namespace {

void refuse_unless(bool fits, const std::string& why) {
  if (!fits) fail(ErrorKind::usage, "this library's MoE kernels cannot compute the layer: {}", why);
}

/// The kernels' configuration of one layer of the set. The engine has padded the layer's input.
MoeConfig config_of(const mxfp4_pack_set& set, const PackedTensor& w13, const mxfp4_pack_moe_layer& given) {
  const Model& model = *set.plan->model;
  const MoeLayer& layer = model.layers[size_t(w13.layer)];
  const Backend& backend = *set.plan->backend;
  MoeConfig c = kernel_config(backend, model, layer, rank_size(backend, layer, set.plan->tp_size));
  const auto in = [&](int64_t value, int64_t most, const char* name) {
    if (value < 1 || value > most) fail(ErrorKind::usage, "{} is {}, expected 1 to {}", name, value, most);
    return value;
  };
  c.top_k = int(in(given.top_k, c.experts, "top_k"));
  c.experts = in(given.experts, c.experts, "experts");
  c.hidden = c.padded_hidden;
  const Activation& activation = model.activation;
  const double limit = given.swiglu_limit != 0 ? given.swiglu_limit : activation.limit;
  refuse_unless(activation.name == "silu" || activation.name == "swigluoai",
                fmt::format("its activation is {}, expected silu or swigluoai", activation.name));
  c.alpha = activation.alpha;
  c.beta = activation.beta;
  c.limit = limit > 0 ? limit : std::numeric_limits<double>::infinity();
  return c;
}

PackedMoe addresses_of(const mxfp4_pack_moe_layer& given, bool bias) {
  const auto at = [&](const void* address, const char* name) {
    if (!address || reinterpret_cast<uintptr_t>(address) % 16)
      fail(ErrorKind::usage, "{} is null or not aligned to 16 bytes", name);
    return static_cast<const uint8_t*>(address);
  };
  PackedMoe p;
  p.w13 = at(given.codes[0], "codes[0]"), p.w2 = at(given.codes[1], "codes[1]");
  p.w13_scale = at(given.scales[0], "scales[0]"), p.w2_scale = at(given.scales[1], "scales[1]");
  if (bias) p.w13_bias = at(given.bias[0], "bias[0]"), p.w2_bias = at(given.bias[1], "bias[1]");
  return p;
}

std::unique_ptr<mxfp4_pack_moe> opened_moe(const mxfp4_pack_set& set, const mxfp4_pack_moe_layer& given, bool open) {
  const PackedTensor& w13 = set.tensor(given.rank, given.tensor);
  if (w13.role != Role::w13 || w13.part != Part::codes)
    fail(ErrorKind::usage, "{}: expected the codes of a layer's w13", w13.name);
  const KernelFormat* format = set.plan->backend->kernel;
  refuse_unless(format && format->cuda != CudaReader::none,
                fmt::format("they do not read the layout of backend {}", set.plan->backend->name));
  const MoeConfig config = config_of(set, w13, given);
  const std::string refusal = moe_refusal(config, *format);
  refuse_unless(refusal.empty(), refusal);
  const std::string missing = resident_moe_missing(given.gpu);
  if (!missing.empty()) fail(ErrorKind::device, "this library's MoE kernels cannot run: {}", missing);
  if (!open) return nullptr;
  auto moe = std::make_unique<mxfp4_pack_moe>();
  moe->layer = open_moe(config, *format, addresses_of(given, set.plan->model->bias), given.gpu);
  return moe;
}

MoeBatch batch_of(const mxfp4_pack_moe_batch& given) {
  const auto need = [](bool fits, const char* what) {
    if (!fits) fail(ErrorKind::usage, "{}", what);
  };
  const auto aligned = [](const void* address, uintptr_t bytes) {
    return address && reinterpret_cast<uintptr_t>(address) % bytes == 0;
  };
  need(given.tokens >= 0, "tokens is negative");
  need(aligned(given.x, 16), "x is null or not aligned to 16 bytes");
  need(aligned(given.out, 16), "out is null or not aligned to 16 bytes");
  need(given.ids && given.weights, "ids or weights is null");
  need(aligned(given.workspace, 256), "workspace is null or not aligned to 256 bytes");
  need(given.mapped >= 0 && given.mapped <= std::numeric_limits<int>::max(), "mapped is out of range");
  return {given.tokens, given.x,   given.ids,       given.weights,        given.expert_map,
          given.mapped, given.out, given.workspace, given.workspace_bytes};
}

}  // namespace

}  // namespace mxfp4

using namespace mxfp4;

mxfp4_pack_status mxfp4_pack_open_moe(const mxfp4_pack_set* set, const mxfp4_pack_moe_layer* layer,
                                      mxfp4_pack_moe** moe) {
  if (moe) *moe = nullptr;
  return guarded([&] {
    if (!set) fail(ErrorKind::usage, "set is null");
    auto opened = opened_moe(*set, known(layer, "layer"), moe != nullptr);
    if (moe) *moe = opened.release();
    return true;
  });
}

void mxfp4_pack_close_moe(mxfp4_pack_moe* moe) { delete moe; }

mxfp4_pack_status mxfp4_pack_moe_workspace(const mxfp4_pack_moe* moe, int64_t tokens, int64_t* bytes) {
  return guarded([&] {
    if (!moe || !bytes) fail(ErrorKind::usage, "moe or bytes is null");
    if (tokens < 1 || tokens > std::numeric_limits<int>::max() / max_cuda_experts)
      fail(ErrorKind::usage, "tokens is {}, expected 1 to {}", tokens,
           std::numeric_limits<int>::max() / max_cuda_experts);
    *bytes = moe->layer->workspace_bytes(tokens);
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_run_moe(const mxfp4_pack_moe* moe, const mxfp4_pack_moe_batch* batch, void* stream) {
  return guarded([&] {
    if (!moe) fail(ErrorKind::usage, "moe is null");
    moe->layer->run(batch_of(known(batch, "batch")), stream);
    return true;
  });
}
