// Layout files: a backend for one size of layer, given at run time (man/mxfp4-pack-layout.5 is their description).
#pragma once

#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

inline constexpr int64_t max_layout_bytes = int64_t(16) << 20;

/// The backend that the text of a layout file describes. It lives as long as the program; each text is read once. A
/// part that equals a built-in layout becomes that layout, which all drivers and GPUs support. If all parts equal those
/// of a built-in backend, `kernel` is that backend's. Throws Error{input}, "FILE: tensors[2].modes: ..", if the text is
/// no layout file.
const Backend& read_layout(const std::string& text, const std::string& file);

/// Reads a layout file and compares its canary with the result of its layouts.
const Backend& read_layout_file(const std::string& path);

/// Throws Error{input} if the backend's layout file has a canary that differs from the result of its layouts.
void check_canary(const Backend& backend, const std::string& file);

/// The matrix of a parameter without its bytes: its real rows and columns, and its pads.
Matrix form_of(const Backend& backend, const Parameter& parameter, Role role, Part part, LayerSize real,
               const Model& model);

/// The text of a layout file that stores the same bytes as a backend, for a layer of this size on a rank. Throws
/// Error{usage} if no layout file can.
std::string write_layout(const Backend& backend, const Model& model, LayerSize size);

/// The built-in backend that has these parts at the file's size; backends with the file's engine or name come first.
/// Null if there is none.
const Backend* find_same(const Backend& file, bool pairs);

}  // namespace mxfp4
