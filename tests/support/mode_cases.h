// Layouts made of modes of every kind, and matrices in all forms for them.
#pragma once

#include <deque>

#include "tests/support/device_cases.h"

namespace mxfp4 {

struct ModeCases {
  std::deque<ModeLayout> modes;
  std::vector<DeviceCase> cases;

  Layout by(Shape storage, Modes m) {
    ByModes layout;
    layout.modes = &modes.emplace_back(storage, std::move(m));
    return layout;
  }

  /// Adds a case with this storage. Its views fill the storage except a few rows and columns.
  void add(Shape storage, const Modes& m) {
    const Layout layout = by(storage, m);
    const int turn = int(cases.size()), views = turn % 3 && storage.n % 2 == 0 ? 2 : 1;
    const Shape padded = {storage.n - (storage.n > 64 ? 2 * (turn % 2) : 0),
                          storage.b - (storage.b > 8 ? turn % 4 : 0)};
    const Shape real = {std::max<int64_t>(1, padded.n / views - turn % 5), std::max<int64_t>(1, padded.b - turn % 3)};
    const int64_t half = padded.n / 2, block = half % 4 ? half % 2 ? 0 : 2 : 4;
    const auto form = CaseRows::Form(turn % 5);
    DeviceCase c{layout, {form, real, views, turn % 9}, padded, {turn % 2 * block, turn % 4 == 1}, {1, 2, 3, 4}};
    if (views == 1 && form != CaseRows::apart) c.source.form = CaseRows::dense;
    if (turn % 4 == 2) c.pad = {PadByte::of(0x3F800000, 4), PadByte::of(0x3F80, 2), PadByte::of(0x40000000, 4)};
    if (turn % 4 == 0) c.add = 6;
    cases.push_back(c);
  }
};

inline void add_built_in(ModeCases& out) {
  for (const Layout& layout : layouts)
    for (const Shape padded : {Shape{128, 64}, {256, 192}, {64, 2}, {64, 4}, {256, 24}})
      if (fits(layout, padded)) {
        const Shape storage = storage_of(layout, padded);
        out.add(storage, modes_of(layout, storage));
      }
}

/// Adds modes without a built-in layout, with `copies` copies of the whole storage.
inline void add_general(ModeCases& out, int64_t copies) {
  const Mode code = {4, {{0, 1}}}, byte = {8, {{0, 1}}}, twice = {2, {{0, 0}}}, rows = {64, {{1, 0}}};
  const Mode backwards = {8, {{0, 7}, {0, 6}, {0, 5}, {0, 4}, {0, 3}, {0, 2}, {0, 1}, {0, 0}}};
  std::vector<Modes> all = {
      {code, {8, {{1, 0}}}, {64, {{0, 4}}}, {8, {{8, 0}}}},                              // eight rows in a word
      {{256, {{0, 1}}}, {4, {{3, 0}, {0, 0}, {2, 0}, {1, 0}}}, {16, {{4, 0}}}},          // rows in another order
      {{16, {{0, 1}}}, {4, {{0, 48}, {0, 32}, {0, 16}, {0, 0}}}, {4, {{0, 64}}}, rows},  // bytes backwards
      {backwards, rows, {32, {{0, 8}}}},                                                 // bits backwards
      {byte, {4, {{0, 0}, {1, 8}, {0, 8}, {1, 0}}}, {32, {{2, 0}}}, {16, {{0, 16}}}},    // steps of rows and bytes
      {{2, {{0, 4}, {0, 0}}}, {2, {{0, 2}, {0, 0}}}, {2, {{0, 1}, {0, 0}}}, {32, {{0, 8}}}, rows},
      {byte, rows, {32, {{0, 8}}}},                         // bytes transposed
      {{32, {{0, 1}}}, rows, {8, {{0, 32}}}},               // words transposed, too
      {code, twice, {64, {{0, 4}}}, rows},                  // each code in a byte
      {code, twice, {64, {{0, 4}}}, twice, rows},           // and each of these rows twice
      {twice, {256, {{0, 1}}}, rows},                       // each bit twice
      {byte, {2, {{0, 0}, {0, 0}}}, rows, {32, {{0, 8}}}},  // each byte twice, by a list of steps
      {code, {8, {{1, 0}}}, {2, {{0, 4}}}, twice, {32, {{0, 8}}}, {8, {{8, 0}}}}};
  for (Modes& m : all) {
    if (copies > 1) m.push_back({copies, {{0, 0}}});
    out.add({64, 32}, m);
  }
  // Sides that are not powers of two, and a list with a step for each row.
  Mode list{94, {}};
  for (int64_t d = 0; d < 94; ++d) list.steps.push_back({d * 41 % 94, 0});
  std::vector<Modes> odd = {
      {{24, {{0, 1}}}, {3, {{0, 24}}}, list}, {byte, list, {9, {{0, 8}}}}, {{12, {{0, 1}}}, {6, {{0, 12}}}, list}};
  for (Modes& m : odd) out.add({94, 9}, m);
}

/// Every kind of layout by modes: units of 1, 2, 4 and 8 bytes and runs, and tiles of all sizes. Also copies of whole
/// tiles, of units and within units, and pads of 1, 2 and 4 bytes.
inline ModeCases all_mode_cases() {
  ModeCases out;
  add_built_in(out);
  for (const int64_t copies : {1, 2, 3})
    for (int turn = 0; turn < 5; ++turn) add_general(out, copies);
  return out;
}

}  // namespace mxfp4
