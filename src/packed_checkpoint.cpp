#include "src/packed_checkpoint.h"

#include <algorithm>
#include <filesystem>

namespace mxfp4 {

namespace {

/// The headers of OUT's safetensors files, as the manifest lists them.
void read_headers(PackedCheckpoint& p, Problems& problems) {
  for (const ListedFile& f : p.manifest.files) {
    if (!f.holds_tensors) continue;
    const std::string path = p.dir + "/" + f.name;
    if (!std::filesystem::is_regular_file(path)) {
      problems.error(f.name, "missing");
      continue;
    }
    for (Tensor& t : read_header(path, f.name, problems).tensors) {
      t.file = int(p.files.shards.size());
      p.files.tensors.push_back(std::move(t));
    }
    p.files.shards.push_back({f.name, path, state_of(open_read(path, f.name).stat())});
  }
  std::sort(p.files.tensors.begin(), p.files.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
}

void check_stored(const PackedCheckpoint& p, const std::string& name, Dtype dtype, const Sizes& shape,
                  Problems& problems) {
  const Tensor* t = p.files.find(name);
  if (!t)
    problems.error(where(p.dir, name), "missing");
  else if (t->dtype != dtype || t->shape != shape)
    problems.error(p.files.where(*t), "{}, {} expected", describe(t->dtype, t->shape), describe(dtype, shape));
}

}  // namespace

std::unique_ptr<PackedCheckpoint> open_packed(const std::string& out, Problems& problems) {
  auto p = std::make_unique<PackedCheckpoint>();
  p->dir = out;
  p->manifest = read_manifest(out);
  const Manifest& m = p->manifest;
  p->model = recognise(m.source, {m.options.gate_up}, problems);
  problems.throw_if_any();
  p->plan = make_plan(m.source, p->model, find_backend(m.backend, m.engine, m.layout_version), {}, problems);
  problems.throw_if_any();
  read_headers(*p, problems);
  if (problems.any()) return p;  // what an unreadable file lacks is not worth a line each
  for (const PackedTensor& t : p->plan.packed) check_stored(*p, t.name, t.parameter->dtype, t.shape, problems);
  for (const CopiedTensor& t : p->plan.copied)
    check_stored(*p, t.source->name, t.source->dtype, t.source->shape, problems);
  return p;
}

}  // namespace mxfp4
