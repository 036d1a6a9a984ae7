#include "src/packed/add_set.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "src/base/folder.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_source(const std::string& source, const PackedCheckpoint& out, const std::string& why) {
  fail(ErrorKind::input, "{}: not the source that {} was made from: {}", printable(source), printable(out.dir), why);
}

bool shares_a_rank(const TensorParallel& a, const TensorParallel& b) {
  return a.size == b.size && std::any_of(a.ranks.begin(), a.ranks.end(), [&](int rank) {
           return std::find(b.ranks.begin(), b.ranks.end(), rank) != b.ranks.end();
         });
}

/// Whether the file system said that it makes no hard links (to this file), not that something went wrong.
bool is_refusal(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK || error == EXDEV;
}

void copy_synced(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  fs::copy(from, to, fs::copy_options::copy_symlinks, ec);
  if (ec) fail_errno(to.string(), "cannot copy", ec.value());
  if (fs::is_symlink(fs::symlink_status(to))) return;
  open_read(to.string()).sync();
}

}  // namespace

int set_number(const Manifest& m, const Backend& b, const TensorParallel& tp) {
  const auto same = std::find_if(m.sets.begin(), m.sets.end(), [&](const ManifestSet& s) {
    return s.engine == b.engine && s.backend == b.name && s.layout_version == b.layout_version && s.tp == tp;
  });
  return int(same - m.sets.begin());
}

void refuse_second(const std::string& out, const Manifest& m, const Backend& b, const TensorParallel& tp) {
  for (const ManifestSet& s : m.sets)
    if (s.engine == b.engine && s.backend == b.name && shares_a_rank(s.tp, tp))
      fail(ErrorKind::usage, "{}: {} is there already{}", out, describe(s),
           s.layout_version == b.layout_version
               ? ""
               : fmt::format(" in layout version {}; loaders could not tell the two apart", s.layout_version));
}

void check_same_form(const Checkpoint& source, const PackedCheckpoint& out) {
  const auto &ours = out.manifest.source.tensors, &theirs = source.tensors;  // both by name
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
  if (source.config != out.manifest.source.config) refuse_source(source.dir, out, "config.json differs");
}

std::vector<std::string> other_tensors(const Plan& plan, const Checksums& sums, const Manifest& m,
                                       const std::vector<bool>& files) {
  std::vector<std::string> names;
  const auto compare = [&](std::optional<int> file, const Tensor& t, const std::vector<Hash>& pieces) {
    if (!files.empty() && (!file || !files[size_t(*file)])) return;
    if (!m.source.find(t.name) || !XXH128_isEqual(hash_of_pieces(pieces), m.checksum_of(t.name)))
      names.push_back(t.name);
  };
  for (size_t i = 0; i < plan.copied.size(); ++i) compare(plan.copied[i].file, *plan.copied[i].source, sums.copied[i]);
  for (size_t i = 0; i < plan.packed.size(); i += plan.tp.ranks.size()) {
    const auto sources = sources_of(plan, plan.packed[i]);
    for (size_t s = 0; s < sources.size(); ++s) compare(plan.packed[i].file, *sources[s], sums.packed[i].sources[s]);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void check_same_contents(const std::string& source, const Plan& plan, const Checksums& sums, const Manifest& m,
                         const std::vector<bool>& files) {
  if (const auto wrong = other_tensors(plan, sums, m, files); !wrong.empty())
    fail(ErrorKind::input, "{}: {} of {} tensors do not have the checksum in {}, {} first; damaged, or another source",
         printable(source), wrong.size(), m.checksums.size(), manifest_name, printable(wrong.front()));
}

std::vector<std::string> files_below(const std::string& dir) {
  std::vector<std::string> names;
  for (const Entry& entry : entries_below(dir))
    if (!entry.is_folder()) names.push_back(entry.name);
  return names;
}

void link_files(const std::string& from, const std::string& to, const std::set<std::string>& fresh) {
  for (const std::string& name : files_below(to))
    if (!fresh.count(name)) fs::remove(fs::path(to) / name);
  bool copies = false;
  for (const std::string& name : files_below(from)) {
    if (fresh.count(name)) continue;
    throw_if_interrupted();
    const fs::path old = fs::path(from) / name, link = fs::path(to) / name;
    std::error_code ec;
    fs::create_directories(link.parent_path(), ec);
    if (ec) fail_errno(link.parent_path().string(), "cannot create", ec.value());
    if (!copies && ::link(old.c_str(), link.c_str()) == 0) continue;
    if (!copies && !is_refusal(errno)) fail_errno(link.string(), "cannot link", errno);
    if (!copies)
      warn(fmt::format("{}: this file system refuses hard links ({}); what is there is copied", to,
                       std::generic_category().message(errno)));
    copies = true;
    copy_synced(old, link);
  }
}

}  // namespace mxfp4
