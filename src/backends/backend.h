// The requirements of one engine's kernel: row order of w13, padding, layouts, names and dtypes of its parameters.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/layouts/layouts.h"
#include "kernels/layouts/matrix.h"
#include "kernels/moe/cpu/kernel_format.h"
#include "kernels/pack/humming.h"
#include "src/backends/engine.h"
#include "src/backends/scale_values.h"
#include "src/models/model.h"

namespace mxfp4 {

enum class Role : uint8_t { w13, w2 };
/// residual: one factor for each expert, of backends that rewrite values.
enum class Part : uint8_t { codes, scales, bias, residual };
inline constexpr Role roles[] = {Role::w13, Role::w2};
inline constexpr Part parts[] = {Part::codes, Part::scales, Part::bias, Part::residual};
const char* name_of(Role role);
const char* name_of(Part part);

using Dims = std::vector<int64_t>;

/// The engine's view of a stored contiguous tensor, if it differs: dtype, shape and strides in elements.
struct View {
  std::string torch_dtype;
  Dims shape, strides;
};

/// One packed tensor of a layer, as the engine's parameter.
struct Parameter {
  std::string name = {};  // "w13_weight"; empty: the backend has no such part
  Layout layout = Plain{};
  Dtype dtype = Dtype::U8;
  std::string torch_dtype = "uint8";
  std::function<Dims(int64_t n, int64_t k)> shape = {};  // of one expert: n rows, k columns, padded by the engine
  PadBytes pad = {};
  uint8_t add = 0;                                          // see BasicMatrix
  const ScaleValues* values = nullptr;                      // of scales in a layout file; null: their bytes
  int64_t columns = 1;                                      // the engine pads rows to a multiple of these bytes
  std::optional<RowOrder> order = {};                       // of w13, if it differs from the backend's
  std::function<View(const Dims& stored)> view = {};        // stored: the tensor's shape, experts first
  Json (*object)(int64_t experts, Shape padded) = nullptr;  // the engine's object around the tensor, if any
};
using Parameters = std::array<std::array<Parameter, std::size(parts)>, std::size(roles)>;

/// A library's versions whose converter makes these bytes: "0.6.10 to 0.6.15.post1", and how that is known.
struct Fit {
  std::string library, range, tested;
};

/// A setting of the engine that the packed tensors need: {"moe_backend", "marlin"}.
struct Setting {
  const char* name;
  const char* value;
  bool (*when)(const Model& model) = nullptr;  // null: always
};

/// Hidden and intermediate size of a layer; the engine pads each up to a multiple.
struct LayerSize {
  int64_t hidden = 0, intermediate = 0;
};

/// A tensor that the engine keeps in addition to the packed tensors: F32, every element is `value`.
struct Constant {
  const char* name;
  double value;
  Dims (*shape)(int64_t experts, LayerSize padded) = [](int64_t experts, LayerSize) { return Dims{experts}; };
};

/// Releases that load a backend's bytes on other GPUs, but raise on this one, a word of Backend::gpu.
struct NoKernel {
  const char* gpu;
  Range releases;
};

struct Backend {
  std::string name;            // "marlin"
  std::string engine;          // "vllm"
  std::string layout_version;  // "1"
  std::string gpu;             // "SM80+"
  std::string summary;
  LayerSize multiple;
  const KernelFormat* kernel;  // how the engine's kernel reads the bytes; null: verify does not compute them
  std::function<RowOrder(const Model& model)> w13_order;
  Parameters parameters;
  Range releases = {};  // releases of the engine that load these bytes
  std::vector<NoKernel> no_kernel = {};
  std::string tested = "sources read";  // how that is known
  std::vector<Fit> libraries = {};      // that the engine calls
  std::vector<Setting> requires_ = {};
  bool halves = false;  // the engine de-interleaves pairs, although the kernel reads rows as loaded
  std::vector<Constant> (*constants)(const Model& model) = nullptr;
  /// The models that this describes; null: all. Backends of one name, engine and version differ in it.
  bool (*takes)(const Model& model) = nullptr;
  /// The reason why the engine cannot serve a layer of this size on a rank; empty if it can.
  std::function<std::string(const Model& model, LayerSize size)> refuse = {};
  /// Changes one expert's values irreversibly before layouts apply. Null for lossless backends. Without codes, only the
  /// scales.
  RewriteLoss (*rewrite)(std::span<uint8_t> codes, std::span<uint8_t> scales) = nullptr;
  /// If no layout version is requested, this form is chosen only up to this number of tensor-parallel ranks. 0: no
  /// limit.
  int most_ranks = 0;
  bool needs_whole_groups = false;  // the engine refuses ranks whose equal shares are no whole groups
  bool first_scale_pads = false;    // pads of rewritten scales are the expert's first
  /// For a backend from a layout file: the file's JSON on one line, and the only supported size on a rank.
  std::string layout_file = {};
  LayerSize only = {};

  const Parameter& parameter(Role role, Part part) const { return parameters[size_t(role)][size_t(part)]; }
};

/// Every backend, in the order in which `backends` lists them.
const std::vector<const Backend*>& backends();

/// The releases for which the backend was written: the engine's, then the libraries'.
std::vector<Fit> fits_of(const Backend& backend);

/// The backend of that name, engine and layout version for a model (null: any). No layout version: the first listed
/// backend that the release loads (empty: the newest known release, else any). Throws Error{usage} with the possible
/// choices if no backend has the name, or if the release loads none. Throws Error{input} if none supports the model.
const Backend& find_backend(const std::string& name, const std::string& engine, const std::string& layout_version,
                            const Model* model = nullptr, const std::string& release = "");

/// As find_backend() without a layout version; null if there is none.
const Backend* default_backend(const std::string& name, const std::string& engine, const Model& model,
                               const std::string& release);

/// The GPUs of all forms of a backend for a model (null: any), "gfx950, gfx942": each once, in the order of backends().
std::string gpus_of(const std::string& name, const std::string& engine, const Model* model = nullptr);

/// The JSON of `fits` in the manifest and in backends --json.
Json to_json(const std::vector<Fit>& fits);

/// The first rank's share of a layer, which is the largest: whole groups, even if the engine pads to less.
LayerSize rank_share(const MoeLayer& layer, int tp_size);

/// The reason why the engine cannot serve a layer on `tp_size` ranks; empty if it can.
std::string refusal(const Backend& backend, const Model& model, const MoeLayer& layer, int tp_size);

/// The reason why the engine refuses the ranks' shares of a layer; empty if it does not. A new set is then refused. An
/// output that has such a set is read.
std::string share_refusal(const Backend& backend, const MoeLayer& layer, int tp_size);

/// Rows and columns of a role's matrix.
Shape matrix_size(Role role, LayerSize size);

/// Bytes of a scale in canonical form: 1, or those of its value.
int64_t scale_bytes(const Parameter& parameter);

/// Bytes of a row of `columns` columns in canonical form, in which a bias has the parameter's dtype.
int64_t row_bytes(Part part, const Parameter& parameter, int64_t columns);

/// The engine's sizes of a layer.
LayerSize padded_size(const Backend& backend, LayerSize size);

/// w13 as the engine's own loader fills it, before conversion: pairs or halves, gate first.
RowOrder loaded_order(const Model& model);

/// "blocks of 8, gate first"
std::string describe(RowOrder order);

}  // namespace mxfp4
