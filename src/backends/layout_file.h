// Layout files: a backend for one size of layer, given at run time (man/mxfp4-pack-layout.5 is their description).
#pragma once

#include <string>

#include "src/backends/backend.h"

namespace mxfp4 {

inline constexpr int64_t max_layout_bytes = int64_t(16) << 20;

/// The backend that the text of a layout file describes; it lives as long as the program, once for each text. Parts
/// that lie as a built-in layout has them are that layout, which all drivers and GPUs know, and where all parts are
/// those of a built-in backend `kernel` is its. Throws Error{input}, "FILE: tensors[2].modes: ..", where it is none.
const Backend& read_layout(const std::string& text, const std::string& file);

/// The same of a file, whose canary must be what the layouts make of it.
const Backend& read_layout_file(const std::string& path);

/// Throws Error{input} where a layout file, the backend's, has a canary and that is not what the layouts make.
void check_canary(const Backend& backend, const std::string& file);

/// The matrix of a parameter without its bytes: what is real and what are pads.
Matrix form_of(const Backend& backend, const Parameter& parameter, Role role, Part part, LayerSize real,
               const Model& model);

/// The layout file that has a backend's bytes of a layer of this size on a rank. Throws Error{usage} where it has none.
std::string write_layout(const Backend& backend, const Model& model, LayerSize size);

/// The backend, not of a file, that has these parts at the file's size; of several, one of the file's engine or name
/// goes before others. Null where none has.
const Backend* find_same(const Backend& file, bool pairs);

}  // namespace mxfp4
