#include "src/packed/add_set.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/packed/checksums.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace {

/// Whether the error means that the file system makes no hard links (to this file). All other errors are failures.
bool is_refusal(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK || error == EXDEV;
}

}  // namespace

void refuse_source(const std::string& source, const PackedCheckpoint& out, const std::string& why) {
  fail(ErrorKind::input, "{}: not the source that {} was made from: {}", printable(source), printable(out.dir), why);
}

int set_number(const Manifest& m, const Backend& b, int tp_size) {
  const auto same = std::find_if(m.sets.begin(), m.sets.end(), [&](const ManifestSet& s) {
    return s.engine == b.engine && s.backend == b.name && s.layout_version == b.layout_version && s.tp_size == tp_size;
  });
  return int(same - m.sets.begin());
}

void refuse_second(const std::string& out, const Manifest& m, const Backend& b, int tp_size) {
  for (const ManifestSet& s : m.sets)
    if (s.engine == b.engine && s.backend == b.name && s.tp_size == tp_size)
      fail(ErrorKind::usage, "{}: {} exists already{}", out, describe(s),
           s.layout_version == b.layout_version
               ? ""
               : fmt::format(" in layout version {}; loaders cannot distinguish them", s.layout_version));
}

void check_same_form(const Checkpoint& source, const PackedCheckpoint& out) {
  const auto &ours = out.manifest.source.tensors, &theirs = source.tensors;  // both sorted by name
  for (const Tensor& t : ours) {
    const Tensor* s = source.find(t.name);
    if (!s) refuse_source(source.dir, out, fmt::format("it has no {}", printable(t.name)));
    if (s->dtype != t.dtype || s->shape != t.shape)
      refuse_source(
          source.dir, out,
          fmt::format("{} is {}, was {}", printable(t.name), describe(s->dtype, s->shape), describe(t.dtype, t.shape)));
  }
  for (const Tensor& t : theirs)
    if (!out.manifest.source.find(t.name)) refuse_source(source.dir, out, printable(t.name) + " is new");
  if (python_text(source.config) != python_text(out.manifest.source.config))  // NaN differs from itself
    refuse_source(source.dir, out, "config.json differs");
}

std::vector<std::string> other_tensors(const Plan& plan, const Checksums& sums, const Manifest& m,
                                       const std::vector<bool>& files) {
  std::vector<std::string> names;
  each_source(plan, sums, [&](const SourceSum& s) {
    const std::string& name = s.tensor.name;
    if (!files.empty() && (!s.file || !files[size_t(*s.file)])) return;
    if (!m.source.find(name) || !XXH128_isEqual(hash_of_pieces(s.hashes), m.checksum_of(name))) names.push_back(name);
  });
  std::sort(names.begin(), names.end());
  return names;
}

void check_same_contents(const std::string& source, const Plan& plan, const Checksums& sums, const Manifest& m,
                         const std::vector<bool>& files) {
  if (const auto wrong = other_tensors(plan, sums, m, files); !wrong.empty())
    fail(ErrorKind::input, "{}: {} of {} tensors do not have the checksum in {}, {} first; damaged, or another source",
         printable(source), wrong.size(), m.checksums.size(), manifest_name, printable(wrong.front()));
}

void link_files(const Folder& from, const OutputDir& to, const std::set<std::string>& fresh) {
  for (const std::string& name : files_below(to.built()))
    if (!fresh.count(name)) to.built().unlink(name);
  bool is_said = false;
  for (const std::string& name : files_below(from)) {
    if (fresh.count(name)) continue;
    throw_if_interrupted();
    const auto s = from.look(name);
    if (s && s->st_uid == ::geteuid()) {  // a file's owner could still change its linked data
      const int error = to.link_from(from, name);
      if (error == 0) continue;
      if (!is_refusal(error)) fail_errno(name, "cannot link", error);
      if (!is_said)
        warn(fmt::format("{}: cannot be hard-linked ({}); this file and similar ones are copied", from.path(name),
                         std::generic_category().message(error)));
      is_said = true;
    }
    to.copy_from(from, name);
  }
}

}  // namespace mxfp4
