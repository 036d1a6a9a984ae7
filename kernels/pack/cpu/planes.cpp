#include "kernels/pack/cpu/planes.h"

#include <algorithm>
#include <map>

namespace mxfp4 {

namespace {

/// Bit `from` of a plane's byte becomes bit `to` of another plane's.
struct Moved {
  int from, to;
};

/// The term's kind and plane are known before the number of planes.
struct Part {
  int kind, plane;
  Route::Term term = {};
};

Part matrix_of(const std::vector<Moved>& bits, int plane) {
  Part part{Route::shift, plane};
  for (const Moved& m : bits) part.term.by[size_t(7 - m.to)] |= uint8_t(1 << m.from);
  std::copy_n(part.term.by.begin(), 8, part.term.by.begin() + 8);
  return part;
}

/// Adds a table for each nibble that has any of these bits.
void add_tables(const std::vector<Moved>& bits, int plane, std::vector<Part>& parts) {
  for (const int half : {0, 1}) {
    Part part{half ? Route::high : Route::low, plane};
    uint8_t mask = 0;
    for (const Moved& m : bits) {
      if (m.from / 4 != half) continue;
      mask = uint8_t(mask | 1 << m.to);
      for (size_t x = 0; x < 16; ++x)
        if (x >> m.from % 4 & 1) part.term.by[x] |= uint8_t(1 << m.to);
    }
    part.term.bits.fill(mask);
    if (mask) parts.push_back(part);
  }
}

/// Adds shifts, which take two instructions unless bits stay at their places. Returns false if tables take fewer: three
/// for each nibble.
bool add_shifts(const std::vector<Moved>& bits, int plane, std::vector<Part>& parts) {
  std::map<int, uint8_t> masks;
  bool nibble[2] = {};
  for (const Moved& m : bits) {
    masks[m.to - m.from] |= uint8_t(1 << m.to);
    nibble[m.from / 4] = true;
  }
  if (int(masks.size()) * 2 - int(masks.count(0)) > (nibble[0] + nibble[1]) * 3) return false;
  for (const auto& [shift, mask] : masks) {
    parts.push_back({shift ? Route::shift : Route::still, plane});
    parts.back().term.by.fill(uint8_t(shift));
    parts.back().term.bits.fill(mask);
  }
  return true;
}

/// The terms that make a plane, in order. The first one may give any bits that others overwrite.
std::vector<Part> parts_of(const std::vector<std::vector<Moved>>& from, Mixing how) {
  std::vector<Part> parts;
  for (int plane = 0; plane < int(from.size()); ++plane) {
    const std::vector<Moved>& bits = from[size_t(plane)];
    if (bits.empty()) continue;
    if (how == Mixing::matrices)
      parts.push_back(matrix_of(bits, plane));
    else if (how == Mixing::tables || !add_shifts(bits, plane, parts))
      add_tables(bits, plane, parts);
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.kind < b.kind; });
  if (parts[0].kind == Route::high)
    parts.insert(parts.begin(), {Route::begin_low, 0});
  else
    parts[0].kind -= Route::shift - Route::begin;
  return parts;
}

}  // namespace

Route::Step mixed(const ModeLayout& layout, const Numbers& n, Mixing how, bool packing) {
  const size_t planes = size_t(1) << n.gathered.size();
  std::vector<std::vector<std::vector<Moved>>> moved(planes, std::vector<std::vector<Moved>>(planes));
  for (size_t stored = 0; stored < layout.bit.size(); ++stored) {
    const size_t bit = size_t(layout.bit[stored]), gathered = size_t(n.plane[bit / 8]) * 8 + bit % 8;
    const size_t from = packing ? gathered : stored, to = packing ? stored : gathered;
    moved[to / 8][from / 8].push_back({int(from % 8), int(to % 8)});
  }
  Route::Step step;
  step.code = Route::mix_1 + int(n.gathered.size());
  for (size_t to = 0; to < planes; ++to) {
    for (Part& part : parts_of(moved[to], how)) {
      part.term.code = part.kind * int(planes) + part.plane;
      step.terms.push_back(part.term);
    }
    step.terms.back().last = true;
  }
  return step;
}

}  // namespace mxfp4
