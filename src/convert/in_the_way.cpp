#include "src/convert/in_the_way.h"

#include <algorithm>

#include "src/convert/destination.h"
#include "src/packed/add_set.h"
#include "src/packed/companions.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace {

/// Whether --add would take the plan's set.
bool can_add(const ConvertOptions& o, const Plan& plan, const Input& in, const PackedCheckpoint& out) try {
  check_same_form(in.checkpoint, out);
  refuse_second(o.out, out.manifest, *plan.backend, plan.tp_size);
  return true;
} catch (const Error&) {
  return false;
}

/// A file in OUT that this tool did not make, or that was changed since; empty if there is none.
std::string foreign_in_out(const Folder& dir) {
  const std::vector<std::string> own = owned_files(dir);
  return foreign_in(dir, {own.begin(), own.end()});
}

bool is_listed(const Manifest& manifest, const std::string& name) {
  return std::any_of(manifest.files.begin(), manifest.files.end(), [&](const ListedFile& f) { return f.name == name; });
}

}  // namespace

void refuse_to_replace(const ConvertOptions& o, const Plan& plan, const Input& in, const std::string& differs) {
  const Folder there = in.place->folder();
  if (o.force || o.add || o.part || o.merge || !has_manifest(there)) return;
  Problems damage;
  std::unique_ptr<PackedCheckpoint> out;
  try {
    out = open_packed(there, o.out, damage);
  } catch (const Error& e) {
    if (e.kind == ErrorKind::input) fail_unreplaceable(e);
  }
  if (!out) return;  // OutputDir reports an OUT that changes
  std::vector<std::string> sets;
  for (const ManifestSet& s : out->manifest.sets) sets.push_back(describe(s));
  const std::string all = fmt::format("{}", fmt::join(sets, ", "));
  const std::string foreign = foreign_in_out(there);
  if (!foreign.empty() && !is_listed(out->manifest, foreign))
    fail(ErrorKind::usage,
         "{}: exists and holds {}, and {}, which mxfp4-pack did not make; move that away and repeat the command", o.out,
         all, printable(foreign));
  const std::string force = foreign.empty() ? "--force replaces it"
                                            : fmt::format("move {} away, then --force replaces it", printable(foreign));
  if (!damage.any() && can_add(o, plan, in, *out))
    fail(ErrorKind::usage, "{}: exists and holds {}; --add adds this set; {}", o.out, all, force);
  if (!differs.empty()) fail(ErrorKind::usage, "{}: exists and holds {}, but {}; {}", o.out, all, differs, force);
  fail(ErrorKind::usage, "{}: exists and holds {}, and this set cannot be added; choose another place, or {}", o.out,
       all, force);
}

}  // namespace mxfp4
