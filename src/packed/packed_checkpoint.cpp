#include "src/packed/packed_checkpoint.h"

#include <map>

namespace mxfp4 {

namespace {

using Stored = std::map<std::pair<std::string, std::string>, Tensor>;  // by file and name

/// The headers of OUT's safetensors files, as the manifest lists them.
Stored read_headers(PackedCheckpoint& p, Problems& problems) {
  Stored stored;
  for (const ListedFile& f : p.manifest.files) {
    if (!f.holds_tensors) continue;
    const std::string path = real_path(p.dir, f.name, problems);
    if (path.empty()) continue;
    for (Tensor& t : read_header(path, f.name, problems).tensors) {
      t.file = int(p.files.shards.size());
      stored.emplace(std::pair(f.name, t.name), std::move(t));
    }
    p.files.shards.push_back({f.name, path, state_of(open_read(path, f.name).stat())});
  }
  return stored;
}

/// The tensor `name` of `file`, with the dtype and shape that were planned.
Tensor find_stored(const Stored& stored, const std::string& file, const std::string& name, Dtype dtype,
                   const Sizes& shape, Problems& problems) {
  const auto it = stored.find({file, name});
  if (it == stored.end()) {
    problems.error(where(file, name), "missing");
    return {};
  }
  if (it->second.dtype != dtype || it->second.shape != shape)
    problems.error(where(file, name), "{}, {} expected", describe(it->second.dtype, it->second.shape),
                   describe(dtype, shape));
  return it->second;
}

PackedSet open_set(const PackedCheckpoint& p, const ManifestSet& m, Problems& problems) {
  PackedSet set;
  set.plan = make_plan(p.manifest.source, p.model, find_backend(m.backend, m.engine, m.layout_version, &p.model),
                       {.tp = m.tp}, problems);
  return set;
}

void find_packed(PackedSet& set, const ManifestSet& m, const Stored& stored, Problems& problems) {
  for (const PackedTensor& t : set.plan.packed) {
    const auto file = m.files.find({t.rank, t.name});
    if (file == m.files.end()) {
      problems.error(manifest_name, "{}: not listed for rank {}", printable(t.name), t.rank);
      continue;
    }
    set.stored.push_back(find_stored(stored, file->second, t.name, t.parameter->dtype, t.shape, problems));
    set.checksums.push_back(m.checksums.at({t.rank, t.name}));
  }
}

}  // namespace

const PackedSet* PackedCheckpoint::complete_set() const {
  for (const PackedSet& set : sets)
    if (set.plan.tp.complete() && !set.plan.backend->rewrite) return &set;
  return nullptr;
}

const PackedSet& PackedCheckpoint::unpackable_set() const {
  if (const PackedSet* set = complete_set()) return *set;
  for (const PackedSet& set : sets)
    if (set.plan.backend->rewrite)
      fail(Kind::input, "{}: {} is lossy: the source's codes and scales are not in it; use the original checkpoint",
           printable(dir), set.plan.backend->name);
  fail(Kind::input, "{}: no set holds all of its ranks; all are needed", printable(dir));
}

std::unique_ptr<PackedCheckpoint> open_packed(const std::string& out, Problems& problems) {
  auto p = std::make_unique<PackedCheckpoint>();
  p->dir = out;
  p->manifest = read_manifest(out);
  p->manifest.source.dir = out;  // where its companions are
  const Manifest& m = p->manifest;
  p->model = recognise(m.source, {m.options.gate_up}, problems);
  problems.throw_if_any();
  for (const ManifestSet& set : m.sets) p->sets.push_back(open_set(*p, set, problems));
  problems.throw_if_any();
  const Stored stored = read_headers(*p, problems);
  if (problems.any()) return p;  // what an unreadable file lacks is not worth a line each
  for (size_t i = 0; i < p->sets.size(); ++i) find_packed(p->sets[i], m.sets[i], stored, problems);
  for (const CopiedTensor& t : p->sets.front().plan.copied) {
    const auto file = m.copied.find(t.source->name);
    if (file == m.copied.end())
      problems.error(manifest_name, "{}: not listed as copied", printable(t.source->name));
    else
      p->copied.push_back(
          find_stored(stored, file->second, t.source->name, t.source->dtype, t.source->shape, problems));
  }
  return p;
}

}  // namespace mxfp4
