// The cases of the packing benches: every built-in layout, the same bytes by its modes, and modes without a built-in
// layout.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/layouts/layouts.h"

namespace mxfp4 {

/// A layer's w13: 2 * rows x columns in the checkpoint, padded to what every layout takes.
struct Layer {
  const char* name;
  int64_t experts, rows, columns, padded_n, padded_columns;
  bool in_turn;  // gate and up rows in turn, or each as a matrix
};

inline int64_t row_bytes(std::string_view layout, int64_t columns) {
  if (layout.ends_with(".scales")) return columns / 32;
  if (layout.ends_with(".bias")) return layout == "trtllm.bias" ? 4 : 2;
  return columns / 2;
}

/// A layout and the bytes of its rows, in the checkpoint and padded.
struct Row {
  std::string name;
  int64_t real, padded;
  Layout layout;
  std::unique_ptr<const ModeLayout> modes = nullptr;  // that the layout is by
};

inline Row by_modes(std::string name, int64_t real, int64_t padded, Shape storage, Modes modes) {
  Row row{std::move(name), real, padded, {}, std::make_unique<ModeLayout>(storage, std::move(modes))};
  ByModes layout;
  layout.modes = row.modes.get();
  row.layout = layout;
  return row;
}

/// Codes and scales in ways that no built-in layout has.
inline std::vector<Row> general_rows(const Layer& layer) {
  const int64_t n = layer.padded_n, real = layer.columns / 2, b = layer.padded_columns / 2, groups = b / 16;
  const Mode byte = {8, {{0, 1}}}, rows = {n, {{1, 0}}};
  Mode list{n, {}};  // 1665 has no divisor in common with any n here: each row once
  for (int64_t d = 0; d < n; ++d) list.steps.push_back({d * 1665 % n, 0});
  std::vector<Row> out;
  const auto add = [&](const char* name, int64_t real_bytes, int64_t bytes, Modes modes) {
    out.push_back(by_modes(name, real_bytes, bytes, {n, bytes}, std::move(modes)));
  };
  add("codes, 8 rows in a word", real, b, {{4, {{0, 1}}}, {8, {{1, 0}}}, {2 * b, {{0, 4}}}, {n / 8, {{8, 0}}}});
  add("codes, bytes transposed", real, b, {byte, rows, {b, {{0, 8}}}});
  add("codes, rows by a list", real, b, {{8 * b, {{0, 1}}}, list});
  add("codes, bits backwards", real, b,
      {{2, {{0, 4}, {0, 0}}}, {2, {{0, 2}, {0, 0}}}, {2, {{0, 1}, {0, 0}}}, {b, {{0, 8}}}, rows});
  add("scales, each row twice", real / 16, groups, {{8 * groups, {{0, 1}}}, {2, {{0, 0}}}, rows});
  add("scales as F32, transposed", real / 4, 4 * groups, {{32, {{0, 1}}}, rows, {groups, {{0, 32}}}});
  return out;
}

inline constexpr const char* in_file = "  by modes";  // the name of the row of a built-in layout as a file has it

/// Those whose names hold `name`; each built-in layout, then its bytes by modes.
inline std::vector<Row> rows_of(const Layer& layer, std::string_view name) {
  std::vector<Row> rows;
  for (const Layout& layout : layouts) {
    const char* const called = name_of(layout);
    if (std::string_view(called).find(name) == std::string_view::npos) continue;
    const int64_t real = row_bytes(called, layer.columns), padded = row_bytes(called, layer.padded_columns);
    const Shape storage = storage_of(layout, {layer.padded_n, padded});
    rows.push_back({called, real, padded, layout});
    rows.push_back(by_modes(in_file, real, padded, storage, modes_of(layout, storage)));
  }
  for (Row& row : general_rows(layer))
    if (row.name.find(name) != std::string::npos) rows.push_back(std::move(row));
  return rows;
}

}  // namespace mxfp4
