#include "src/verify/kernel_file.h"

namespace mxfp4 {

template <class T>
void KernelFile::put(const char* name, Dtype dtype, int64_t tokens, std::span<const T> values) {
  const auto bytes = int64_t(values.size_bytes());
  tensors_.push_back({fmt::format("{}.{}", batches_.size() - 1, name),
                      dtype,
                      {tokens, int64_t(values.size()) / tokens},
                      0,
                      int64_t(data_.size()),
                      bytes});
  data_.append(reinterpret_cast<const char*>(values.data()), size_t(bytes));
}

void KernelFile::add(const std::string& layer, bool forced, const Routing& routing, std::span<const float> x,
                     std::span<const double> out) {
  if (!batches_.emplace(layer, routing.tokens, forced).second) return;
  metadata_.emplace_back(fmt::format("{}.layer", batches_.size() - 1), layer);
  put("x", Dtype::F32, routing.tokens, x);
  put("ids", Dtype::I32, routing.tokens, std::span<const int32_t>(routing.ids));
  put("weights", Dtype::F32, routing.tokens, std::span<const float>(routing.weights));
  put("out", Dtype::F64, routing.tokens, out);
  data_.resize((data_.size() + 7) / 8 * 8);
}

std::string KernelFile::text() const { return write_header(tensors_, metadata_, 8) + data_; }

}  // namespace mxfp4
