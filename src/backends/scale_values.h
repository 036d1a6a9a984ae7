// The table of a layout file that gives the stored value of each scale byte, for scales that are no byte plus a
// constant.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mxfp4 {

/// Values of 1, 2 or 4 bytes, lowest first, for some or all of the 256 scale bytes; no two scales have the same.
class ScaleValues {
 public:
  using Table = std::array<std::optional<uint32_t>, 256>;
  /// Throws std::invalid_argument with the reason if a value is too wide, if two scales have the same value, or if
  /// there is no value.
  ScaleValues(int64_t width, const Table& values);
  int64_t width() const { return width_; }
  bool has(uint8_t scale) const { return values_[scale].has_value(); }
  /// Whether each value is a byte, its scale's own.
  bool are_scales() const;
  /// The scales that have values, in words: "0x00 to 0xfe".
  std::string domain() const;
  /// Replaces `count` scale bytes by their values in the same memory of count * width bytes. A scale without a value
  /// becomes a value that represents no scale.
  void widen(uint8_t* at, int64_t count) const;
  /// The inverse of widen(). Returns the index of the first value that represents no scale; -1 if there is none.
  int64_t narrow(const uint8_t* from, int64_t count, uint8_t* to) const;

 private:
  int64_t width_;
  Table values_;
  uint32_t outside_ = 0;                              // represents no scale
  std::vector<std::pair<uint32_t, uint8_t>> scales_;  // by value
};

}  // namespace mxfp4
