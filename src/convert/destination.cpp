#include "src/convert/destination.h"

#include <algorithm>
#include <filesystem>

#include "src/convert/published_source.h"
#include "src/packed/add_set.h"
#include "src/packed/companions.h"
#include "src/packed/file_checks.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

bool is_own_source(const ConvertOptions& options, const Place& place) {
  const Folder source = options.add ? Folder::try_open(options.checkpoint) : Folder();
  return source && source.is_at(place.above, place.name);
}

ManifestOptions NewOutput::manifest_options(const Input& in) const {
  ManifestOptions m;
  m.model = options_.model;
  m.model.allow_incomplete = options_.is_incomplete;
  m.published = in.known ? in.known->options.published : in.published;
  m.skips_published = in.known ? in.known->options.skips_published : options_.skips_published;
  return m;
}

Folder folder_of(const ConvertOptions& options, const Place* place) {
  return place ? place->folder() : Folder::try_open(options.out);
}

void fail_unreplaceable(const Error& e) {
  fail(ErrorKind::usage, "{}; it cannot be replaced: choose another place, then remove it", e.lines.front());
}

NewOutput::NewOutput(const ConvertOptions& options, const Place* place) : options_(options), place_(place) {
  const Folder there = options.force ? folder_of(options, place) : Folder();
  if (!has_manifest(there)) return;
  try {
    replaced_ = read_listed_files(there);
  } catch (const Error& e) {
    if (e.kind == ErrorKind::input) fail_unreplaceable({e.kind, options.out + ": " + e.lines.front()});
    throw;
  }
}

void NewOutput::check(const Plan&) const {
  if (replaced_.empty()) return;
  const Folder there = folder_of(options_, place_);
  const std::string edited = there ? edited_file(there, replaced_) : "";
  if (edited.empty()) return;
  if (read_listed_files(there) != replaced_)  // parts do not lock OUT
    fail(ErrorKind::usage, "{}: was replaced during the run; if its parts were merged, all is done", options_.out);
  fail(ErrorKind::usage, "{}: {} was changed since it was written; move it away, or choose another place", options_.out,
       edited);
}

int AddedSet::number(const Backend& backend, int tp_size) const { return set_number(out_.manifest, backend, tp_size); }

ManifestOptions AddedSet::manifest_options(const Input& in) const {
  ManifestOptions m = out_.manifest.options;
  m.tool_version = MXFP4_VERSION;
  if (!in.published.empty() && !has_record(m.published, in.published)) m.published = in.published;
  m.skips_published = m.skips_published && m.published.empty();
  return m;
}

void AddedSet::check(const Plan& plan) const {
  refuse_second(options_.out, out_.manifest, *plan.backend, plan.tp_size);
  for (const std::string& name : names_of_set(plan)) check_free(name);
  if (!has_run_file(out_.held.folder())) check_free(run_file);
}

void AddedSet::check_free(const std::string& name) const {
  if (out_.held.folder().has(name))
    fail(ErrorKind::usage, "{}: {} was not made by mxfp4-pack; move it away first", options_.out, printable(name));
}

void AddedSet::check_same(const Folder& replaced) const {
  if (const std::string edited = edited_file(replaced, out_.manifest.files); !edited.empty())
    fail(ErrorKind::usage, "{}: {} was changed since it was written; move it away, or choose another place",
         options_.out, edited);
  if (identity_of(out_.held.folder().stat()) != identity_of(replaced.stat()))
    fail(ErrorKind::io, "{}: another user or program has put something else in its place; it stays as it is",
         options_.out);
}

void AddedSet::begin(const Plan& plan, const OutputDir& out) const {
  if (out.replaced()) check_same(*out.replaced());
  link_earlier(plan, out, out_);
}

void AddedSet::end() const { out_.held.close(); }

}  // namespace mxfp4
