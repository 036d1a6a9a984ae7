// The work of one thread on one unit of a layout by modes. Bytes of the views' rows are read and written one by one,
// since rows begin at any address; neighbouring bytes are in a cache. The host can also call these functions.
#pragma once

#include <cstring>

#include "kernels/pack/cuda/batch.h"
#include "kernels/pack/cuda/unit_map.h"

namespace mxfp4 {

/// At a multiple of the size of Word.
template <class Word>
MXFP4_HD Word load_word(const uint8_t* from) {
  Word word;
  std::memcpy(&word, __builtin_assume_aligned(from, sizeof(Word)), sizeof(Word));
  return word;
}
template <class Word>
MXFP4_HD void store_word(uint8_t* to, Word word) {
  std::memcpy(__builtin_assume_aligned(to, sizeof(Word)), &word, sizeof(Word));
}

/// `add` added to each byte.
template <class Word>
MXFP4_HD Word plus(Word x, uint8_t add) {
  const Word high = Word(0x8080808080808080u), y = Word(add * 0x0101010101010101u);
  return Word(((x & Word(~high)) + (y & Word(~high))) ^ ((x ^ y) & high));
}

/// Gathered bits to stored ones, and back.
template <class Word>
MXFP4_HD Word turned(const UnitMap& map, Word x) {
  constexpr int bits = sizeof(Word) * 8;
  Word out = 0;
  for (int i = 0; i < map.turns; ++i)
    out |= Word(x >> map.turn[i].by | x << (bits - map.turn[i].by) % bits) & Word(map.turn[i].mask);
  return out;
}
template <class Word>
MXFP4_HD Word turned_back(const UnitMap& map, Word stored) {
  constexpr int bits = sizeof(Word) * 8;
  Word out = 0;
  for (int i = 0; i < map.turns; ++i) {
    const Word x = stored & Word(map.turn[i].mask);
    out |= Word(x << map.turn[i].by | x >> (bits - map.turn[i].by) % bits);
  }
  return out;
}

/// The bytes of a unit in the views' rows.
template <class Word>
class UnitBytes {
 public:
  MXFP4_HD UnitBytes(const Batch& batch, const Batch::Item& item, const UnitMap& map, UnitPlace first)
      : batch_(batch), map_(map), first_(first) {
    uint8_t* row = nullptr;
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j == 0 || map.row[j] != map.row[j - 1]) row = row_at(item, first.row + map.row[j]);
      const uint32_t b = first.byte + map.byte[j];
      at_[j] = row && b < uint32_t(batch.matrix.real.b) ? row + b : nullptr;
    }
  }

  /// Loads the bytes of a unit, including pads, before `add`.
  MXFP4_HD Word load() const {
    if (is_one_word()) return load_word<Word>(at_[0]);
    Word x = 0;
    unsigned pads = 0;
#pragma unroll
    for (int j = 0; j < size; ++j)
      if (at_[j])
        x |= Word(Word(*at_[j]) << 8 * j);
      else
        pads |= 1u << j;
    for (int j = 0; pads; ++j, pads >>= 1)
      if (pads & 1) x |= Word(Word(pad(j)) << 8 * j);
    return x;
  }

  /// x: the unit before `add`. For each byte j that must be a pad, calls pads(j, byte, expected byte) instead of
  /// storing it.
  template <class Pads>
  MXFP4_HD void store(Word x, Pads pads) const {
    if (is_one_word()) return store_word(at_[0], x);
    unsigned left = 0;
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (map_.is_repeated >> j & 1) continue;
      if (at_[j])
        *at_[j] = uint8_t(x >> 8 * j);
      else
        left |= 1u << j;
    }
    for (int j = 0; left; ++j, left >>= 1)
      if (left & 1 && uint8_t(x >> 8 * j) != pad(j)) pads(j, uint8_t(x >> 8 * j), pad(j));
  }

 private:
  static constexpr int size = sizeof(Word);

  /// Row n of the storage; null if no view has this row.
  MXFP4_HD uint8_t* row_at(const Batch::Item& item, uint32_t n) const {
    const MutableMatrix& m = batch_.matrix;
    if (n >= uint32_t(m.padded.n)) return nullptr;
    const RowSource source = m.source(n);
    return source.row < m.real.n ? item.view[source.view] + source.row * m.view[source.view].stride : nullptr;
  }
  MXFP4_HD bool is_one_word() const {
    return map_.in_row && at_[0] && at_[size - 1] && reinterpret_cast<uintptr_t>(at_[0]) % size == 0;
  }
  MXFP4_HD uint8_t pad(int j) const {
    return batch_.matrix.pad_byte(first_.row + map_.row[j], first_.byte + map_.byte[j]);
  }

  const Batch& batch_;
  const UnitMap& map_;
  UnitPlace first_;
  uint8_t* at_[size];
};

template <class Word>
MXFP4_HD void pack_unit(const Batch& batch, const Batch::Item& item, const UnitMap& map, uint32_t i) {
  const UnitPlace place = map.place(i);
  const Word x = UnitBytes<Word>(batch, item, map, place).load(), stored = turned(map, plus(x, batch.matrix.add));
  for (uint32_t c = 0; c < map.copies; ++c) store_word(item.packed + place.to + map.copy[c], stored);
}

/// The value that all copies of a unit must have, from the copy that was read.
template <class Word>
MXFP4_HD Word as_read(const UnitMap& map, Word gathered) {
  Word x = 0;
  for (int j = 0; j < int(sizeof(Word)); ++j) x |= Word(Word(uint8_t(gathered >> 8 * map.last[j])) << 8 * j);
  return turned(map, x);
}

/// Reports wrong bytes by found.pad(place in the storage's rows, byte, expected byte) and found.copy(place in the
/// packed matrix).
template <class Word, class Found>
MXFP4_HD void unpack_unit(const Batch& batch, const Batch::Item& item, const UnitMap& map, uint32_t i, Found found) {
  const UnitPlace place = map.place(i);
  const uint8_t add = batch.matrix.add;
  const Word x = turned_back(map, load_word<Word>(item.packed + place.to));
  UnitBytes<Word>(batch, item, map, place).store(plus(x, uint8_t(-add)), [&](int j, uint8_t is, uint8_t expected) {
    const int64_t row = place.row + map.row[j], byte = place.byte + map.byte[j];
    found.pad(row * batch.storage.b + byte, uint8_t(is + add), uint8_t(expected + add));
  });
  if (map.copies == 1 && !map.is_repeated) return;
  const Word expected = as_read(map, x);
  for (uint32_t c = 0; c < map.copies; ++c) {
    const uint32_t at = place.to + map.copy[c];
    const Word differs = load_word<Word>(item.packed + at) ^ expected;
    for (uint32_t j = 0; j < sizeof(Word); ++j)
      if (uint8_t(differs >> 8 * j)) found.copy(at + j);
  }
}

}  // namespace mxfp4
