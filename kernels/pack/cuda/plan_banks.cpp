#include "kernels/pack/cuda/plan_banks.h"

#include <algorithm>

namespace mxfp4 {

int64_t wavefronts(const std::vector<int64_t>& places, int64_t bytes) {
  constexpr int64_t line = 128;  // bytes of all banks
  const int64_t width = std::max<int64_t>(bytes, 4);
  const auto lanes = size_t(line / width);
  int64_t all = 0;
  for (size_t first = 0; first < places.size(); first += lanes) {
    int64_t wanted[32][32], count[32] = {}, most = 0;  // by bank: the words wanted, each once
    for (size_t i = first; i < std::min(first + lanes, places.size()); ++i) {
      const int64_t word = places[i] / width, bank = word % int64_t(lanes);
      int64_t* const end = wanted[bank] + count[bank];
      if (std::find(wanted[bank], end, word) != end) continue;
      *end = word;
      most = std::max(most, ++count[bank]);
    }
    all += most;
  }
  return all;
}

}  // namespace mxfp4
