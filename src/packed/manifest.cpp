#include "src/packed/manifest.h"

#include "src/backends/layout_file.h"

namespace mxfp4 {

const Backend& backend_of(const ManifestSet& set, const Model& model) {
  if (set.layout_file.empty()) return find_backend(set.backend, set.engine, set.layout_version, &model);
  const Backend& b = read_layout(set.layout_file, std::string(manifest_name) + ": layout_file");
  if (set.backend != b.name || set.engine != b.engine || set.layout_version != b.layout_version)
    fail(ErrorKind::input, "{}: {} {} does not match its layout_file ({} of {}, {}); damaged?", manifest_name,
         describe(set), set.layout_version, b.name, b.engine, b.layout_version);
  return b;
}

std::string describe(const ManifestSet& s) {
  std::string out = printable(s.backend + " of " + s.engine);  // names in a layout file are arbitrary
  if (s.tp_size > 1) out += fmt::format(" at tp {}", s.tp_size);
  return out;
}

}  // namespace mxfp4
