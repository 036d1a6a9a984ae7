#include "src/plan/rank_advice.h"

#include "src/backends/serve.h"
#include "src/base/log.h"
#include "src/plan/plan.h"

namespace mxfp4 {

Load load_of(const Plan& plan) {
  Load load{.gpu_bytes = plan.gpu_bytes};
  for (const Tensor& t : plan.checkpoint->tensors) load.model_bytes += t.bytes;
  return load;
}

std::string heads_advice(const Plan& plan) {
  const Model& model = *plan.model;
  if (heads_divide(model, plan.tp_size)) return {};
  const std::vector<int> sizes = tp_sizes(model);
  const int64_t shared = model.attention.key_value_heads;
  return fmt::format(
      "{} attention heads{} do not divide by tensor-parallel size {}, so {} needs data parallelism for this set{}",
      model.attention.heads, shared ? fmt::format(" or {} key-value heads", shared) : "", plan.tp_size,
      plan.backend->engine, sizes.empty() ? "" : fmt::format("; --tp-size {} would do", fmt::join(sizes, ", ")));
}

std::string weights_advice(const Plan& plan) {
  const Load load = load_of(plan);
  const int gpus = gpus_needed(*plan.backend, *plan.model, load);
  if (gpus <= plan.tp_size) return {};
  return fmt::format(
      "{} of weights do not fit {} of {}; this set serves tensor-parallel size {} only: for {} GPUs convert with "
      "--tp-size {}",
      human_bytes(load.model_bytes), counted(plan.tp_size, "GPU"), human_bytes(load.gpu_bytes), plan.tp_size, gpus,
      gpus);
}

void advise_ranks(const Plan& plan) {
  if (const std::string why = why_not_loaded(*plan.model); !why.empty()) return warn(why);
  if (const std::string heads = heads_advice(plan); !heads.empty()) return warn(heads);
  if (const std::string weights = weights_advice(plan); !weights.empty()) note(weights);
}

}  // namespace mxfp4
