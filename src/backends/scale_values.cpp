#include "src/backends/scale_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace mxfp4 {

static_assert(std::endian::native == std::endian::little);

ScaleValues::ScaleValues(int64_t width, const Table& values) : width_(width), values_(values) {
  for (int scale = 0; scale < 256; ++scale) {
    const auto& value = values_[size_t(scale)];
    if (!value) continue;
    if (uint64_t(*value) >> 8 * width)
      throw std::invalid_argument(
          fmt::format("scale {:#04x} has {:#x}, which needs more bytes than {}", scale, *value, width));
    scales_.emplace_back(*value, uint8_t(scale));
  }
  if (scales_.empty()) throw std::invalid_argument("no scale has a value");
  std::sort(scales_.begin(), scales_.end());
  for (size_t i = 1; i < scales_.size(); ++i)
    if (scales_[i].first == scales_[i - 1].first)
      throw std::invalid_argument(fmt::format("scales {:#04x} and {:#04x} both have {:#x}; that would be lossy",
                                              scales_[i - 1].second, scales_[i].second, scales_[i].first));
  for (const auto& [value, scale] : scales_)
    if (value == outside_) ++outside_;
}

bool ScaleValues::are_scales() const {
  return width_ == 1 && std::all_of(scales_.begin(), scales_.end(), [](const auto& s) { return s.first == s.second; });
}

std::string ScaleValues::domain() const {
  std::string out;
  for (int first = 0, end; first < 256; first = end + 1) {
    for (end = first; end < 256 && has(uint8_t(end));) ++end;
    if (first == end) continue;
    out += out.empty() ? "" : ", ";
    out += end - first == 1 ? fmt::format("{:#04x}", first) : fmt::format("{:#04x} to {:#04x}", first, end - 1);
  }
  return out.empty() ? "none" : out;
}

void ScaleValues::widen(uint8_t* at, int64_t count) const {
  for (int64_t i = count; i-- > 0;) {  // from the end: no byte is overwritten before it is read
    const uint32_t value = values_[at[i]].value_or(outside_);
    std::memcpy(at + i * width_, &value, size_t(width_));
  }
}

int64_t ScaleValues::narrow(const uint8_t* from, int64_t count, uint8_t* to) const {
  int64_t first = -1;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t value = 0;
    std::memcpy(&value, from + i * width_, size_t(width_));
    const auto found = std::lower_bound(scales_.begin(), scales_.end(), std::pair{value, uint8_t(0)});
    const bool known = found != scales_.end() && found->first == value;
    to[i] = known ? found->second : 0;
    if (!known && first < 0) first = i;
  }
  return first;
}

}  // namespace mxfp4
