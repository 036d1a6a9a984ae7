#include "src/packed/packed_checkpoint.h"

#include <algorithm>
#include <map>

#include "src/packed/source_headers.h"
#include "src/packed/tables.h"

namespace mxfp4 {

namespace {

/// Reads the manifest and opens all files that it lists.
void hold_files(PackedCheckpoint& p) {
  check_has_manifest(p.held.folder(), p.dir);
  p.held.hold(manifest_name);
  Problems problems;
  const std::string path = p.held.path(manifest_name, problems);
  problems.throw_if_any();
  p.manifest = read_manifest_file(path);
  for (const ListedFile& f : p.manifest.files) p.held.hold(f.name);
  p.held.throw_if_replaced(manifest_name);  // otherwise some files could belong to another output
  Checkpoint& source = p.manifest.source;
  source.dir = p.dir;
  source.folder = p.held.source();
  Problems found_missing_when_read;
  for (const std::string& name : source.companions)
    if (const std::string held = p.held.path(name, found_missing_when_read); !held.empty())
      source.companion_files[name] = {name, held, state_of(open_read(held, name).stat())};
}

const ListedFile* find_listed(const Manifest& m, std::string_view kind, std::string_view name = {}) {
  const auto found = std::find_if(m.files.begin(), m.files.end(), [&](const ListedFile& f) {
    return f.kind == kind && (name.empty() || f.name == name);
  });
  return found == m.files.end() ? nullptr : &*found;
}

/// The path of a listed file. Empty, with a problem, if the file is missing or has another size.
std::string path_of(const PackedCheckpoint& p, const ListedFile& listed, Problems& problems) {
  const std::string path = p.held.path(listed.name, problems);
  if (path.empty()) return {};
  const int64_t bytes = open_read(path, listed.name).stat().st_size;
  if (bytes == listed.bytes) return path;
  problems.error(listed.name, "{} bytes, {} expected", bytes, listed.bytes);
  return {};
}

/// The path of the only file of a kind.
std::string path_of_kind(const PackedCheckpoint& p, const char* kind, Problems& problems) {
  if (const ListedFile* listed = find_listed(p.manifest, kind)) return path_of(p, *listed, problems);
  problems.error(manifest_name, "files: none of kind {}", kind);
  return {};
}

/// Reads headers and index of the source's shards, then the checksums of its tensors.
void read_source_files(PackedCheckpoint& p, Problems& problems) {
  Manifest& m = p.manifest;
  const std::string headers = path_of_kind(p, file_kind::source_headers, problems);
  const std::string table = path_of_kind(p, file_kind::source_table, problems);
  if (!problems.any())
    take_source_headers(headers, find_listed(m, file_kind::source_headers)->checksum, m.source, problems);
  if (const ListedFile* index = find_listed(m, file_kind::source_index))
    if (const std::string path = path_of(p, *index, problems); !path.empty()) {
      m.source.index = {path, index->name, 0, index->bytes, hash_of(open_read(path, index->name))};
      if (to_hex(m.source.index.hash) != index->checksum)
        problems.error(index->name, "it does not have the checksum in {}", manifest_name);
    }
  if (problems.any()) return;
  m.checksums.resize(m.source.tensors.size());
  std::vector<bool> listed(m.source.tensors.size());
  each_line(table, *find_listed(m, file_kind::source_table), problems,
            [&](std::string_view line, const std::string& place) { take_source_line(line, place, m, listed); });
  for (size_t i = 0; i < listed.size() && !problems.any(); ++i)
    if (!listed[i]) problems.error(where(source_table_name, m.source.tensors[i].name), "not listed");
}

void read_set_table(const PackedCheckpoint& p, ManifestSet& set, Problems& problems) {
  const ListedFile* const listed = find_listed(p.manifest, file_kind::table, set.table);
  if (!listed) return problems.error(manifest_name, "{}: {} is not listed", describe(set), set.table);
  if (const std::string path = path_of(p, *listed, problems); !path.empty())
    each_line(path, *listed, problems,
              [&](std::string_view line, const std::string& place) { take_set_line(line, place, set); });
}

using Stored = std::map<std::pair<std::string, std::string>, Tensor>;  // by file and name

/// Reads the headers of the safetensors files that the manifest lists.
Stored read_headers(PackedCheckpoint& p, Problems& problems) {
  Stored stored;
  for (const ListedFile& f : p.manifest.files) {
    if (!f.holds_tensors()) continue;
    const std::string path = p.held.path(f.name, problems);
    if (path.empty()) continue;
    const Fd file = open_read(path, f.name);
    for (Tensor& t : read_header(file, f.name, problems).tensors) {
      t.file = int(p.files.shards.size());
      stored.emplace(std::pair(f.name, t.name), std::move(t));
    }
    p.files.shards.push_back({f.name, path, state_of(file.stat())});
  }
  return stored;
}

/// The tensor `name` of `file`, with the planned dtype and shape.
Tensor find_stored(const Stored& stored, const std::string& file, const std::string& name, Dtype dtype,
                   const Dims& shape, Problems& problems) {
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

void find_packed(PackedSet& set, const ManifestSet& m, const Stored& stored, Problems& problems) {
  for (const PackedTensor& t : set.plan.packed) {
    const auto file = m.files.find({t.rank, t.name});
    if (file == m.files.end()) {
      problems.error(m.table, "{}: not listed for rank {}", printable(t.name), t.rank);
      continue;
    }
    set.stored.push_back(find_stored(stored, file->second, t.name, t.parameter->dtype, t.shape, problems));
    set.checksums.push_back(m.checksums.at({t.rank, t.name}));
  }
}

}  // namespace

const PackedSet& PackedCheckpoint::unpackable_set() const {
  for (const PackedSet& set : sets)
    if (!set.is_lossy()) return set;
  fail(ErrorKind::input, "{}: {} is lossy: the source's codes and scales are not in it; use the original checkpoint",
       printable(dir), sets.front().plan.backend->name);
}

Plan plan_of(const Manifest& m, const ManifestSet& set, const Model& model, Problems& problems) {
  const Backend& backend = backend_of(set, model);
  const size_t listed = set.files.size();
  if (listed < size_t(set.tp_size)) {  // A damaged size makes no plan: the plan would need much memory.
    problems.error(set.table, "{}: {} packed tensors are listed for {} ranks", describe(set), listed, set.tp_size);
    return {};
  }
  Plan plan = make_plan(m.source, model, backend, {.tp_size = set.tp_size}, problems);
  if (!problems.any() && listed != plan.packed.size())
    problems.error(set.table, "{}: {} packed tensors are listed, {} expected", describe(set), listed,
                   plan.packed.size());
  return plan;
}

namespace {

std::unique_ptr<PackedCheckpoint> open_held(const std::string& shown, HeldFiles files, Problems& problems) {
  auto p = std::make_unique<PackedCheckpoint>(shown, std::move(files));
  try {
    hold_files(*p);
  } catch (const Error& e) {
    p->held.throw_if_replaced(manifest_name);
    const bool is_manifest = e.lines.front().starts_with(manifest_name);
    if (is_manifest) fail(e.kind, "{}: {}", shown, e.lines.front());
    throw;
  } catch (const std::exception&) {
    p->held.throw_if_replaced(manifest_name);
    throw;
  }
  Manifest& m = p->manifest;
  read_source_files(*p, problems);
  for (ManifestSet& set : m.sets) read_set_table(*p, set, problems);
  if (problems.any()) return p;
  Problems unreadable;
  p->model = recognise(m.source, m.options.model, unreadable);
  if (unreadable.any()) {
    problems.add(Error(ErrorKind::input, unreadable.errors()));
    problems.throw_if_any();
  }
  for (const ManifestSet& set : m.sets) p->sets.push_back({plan_of(m, set, p->model, unreadable), {}, {}});
  unreadable.throw_if_any();
  const Stored stored = read_headers(*p, problems);
  if (problems.any()) return p;  // do not report each tensor of an unreadable file
  for (size_t i = 0; i < p->sets.size(); ++i) find_packed(p->sets[i], m.sets[i], stored, problems);
  for (const CopiedTensor& t : p->sets.front().plan.copied) {
    const auto file = m.copied.find(t.source->name);
    if (file == m.copied.end())
      problems.error(source_table_name, "{}: not listed as copied", printable(t.source->name));
    else
      p->copied.push_back(
          find_stored(stored, file->second, t.source->name, t.source->dtype, t.source->shape, problems));
  }
  return p;
}

}  // namespace

std::unique_ptr<PackedCheckpoint> open_packed(const std::string& out, Problems& problems) {
  return open_held(out, HeldFiles(out), problems);
}

std::unique_ptr<PackedCheckpoint> open_packed(const Folder& out, const std::string& shown, Problems& problems) {
  check_has_manifest(out, shown);
  return open_held(shown, HeldFiles(out.again()), problems);
}

}  // namespace mxfp4
