// What one engine's kernel wants: row order of w13, padding, layouts, names and dtypes of its parameters.
#pragma once

#include <string>
#include <vector>

#include "kernels/layouts.h"
#include "kernels/matrix.h"
#include "src/model.h"

namespace mxfp4 {

enum class Role : uint8_t { w13, w2 };
enum class Part : uint8_t { codes, scales, bias };
inline constexpr Role roles[] = {Role::w13, Role::w2};
inline constexpr Part parts[] = {Part::codes, Part::scales, Part::bias};
const char* name_of(Role role);
const char* name_of(Part part);

using Sizes = std::vector<int64_t>;

/// How the engine sees a stored contiguous tensor, where that differs: dtype, shape and strides in elements.
struct View {
  const char* torch_dtype;
  Sizes shape, strides;
};

/// One packed tensor of a layer, as the engine's parameter.
struct Parameter {
  const char* name;  // "w13_weight"
  Layout layout;
  Dtype dtype;
  const char* torch_dtype;
  Sizes (*shape)(int64_t n, int64_t k);  // of one expert: n rows, k columns, padded by the engine
  PadBytes pad = {};
  uint8_t add = 0;  // see BasicMatrix
  View (*view)(int64_t experts, int64_t n, int64_t k) = nullptr;
};

/// A library's versions whose converter makes these bytes: "0.21 to 0.27.1", and how that is known.
struct Fit {
  const char* library;
  const char* range;
  const char* tested;
};

/// A setting of the engine that the packed tensors need: {"moe_backend", "marlin"}.
struct Setting {
  const char* name;
  const char* value;
};

/// Hidden and intermediate size of a layer; the engine pads each up to a multiple.
struct LayerSize {
  int64_t hidden = 0, intermediate = 0;
};

struct Backend {
  const char* name;            // "marlin"
  const char* engine;          // "vllm"
  const char* layout_version;  // "1"
  const char* gpu;             // "SM80+"
  const char* summary;
  LayerSize multiple;
  RowOrder (*w13_order)(const Model& model);
  Parameter parameters[2][3];  // [Role][Part]
  std::vector<Fit> fits;
  std::vector<Setting> requires_;

  const Parameter& parameter(Role role, Part part) const { return parameters[size_t(role)][size_t(part)]; }
};

/// Every backend, in the order in which `backends` lists them.
const std::vector<const Backend*>& backends();

/// Throws Error{usage} that lists what there is where none is called so.
const Backend& find_backend(const std::string& name, const std::string& engine, const std::string& layout_version);

/// The engine's sizes of a layer.
LayerSize padded_size(const Backend& backend, LayerSize size);

/// w13 as the engine's own loader fills it, before conversion: pairs or halves, gate first.
RowOrder loaded_order(const Model& model);

}  // namespace mxfp4
