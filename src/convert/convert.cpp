#include "src/convert/convert.h"

#include <algorithm>

#include "src/backends/alias.h"
#include "src/backends/gpu.h"
#include "src/backends/layout_file.h"
#include "src/backends/select.h"
#include "src/backends/unread.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/threads.h"
#include "src/convert/conversion.h"
#include "src/convert/destination.h"
#include "src/convert/in_the_way.h"
#include "src/convert/merge.h"
#include "src/convert/part.h"
#include "src/convert/part_run.h"
#include "src/convert/published_source.h"
#include "src/convert/report.h"
#include "src/convert/run_identity.h"
#include "src/convert/unchanged.h"
#include "src/io/leftover.h"
#include "src/io/merge_claim.h"
#include "src/io/output.h"
#include "src/io/place.h"
#include "src/io/source_folder.h"
#include "src/models/complete.h"
#include "src/packed/add_set.h"
#include "src/packed/companions.h"
#include "src/packed/file_checks.h"
#include "src/packed/manifest.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/source.h"
#include "src/plan/rank_advice.h"
#include "src/plan/rewrite.h"

namespace mxfp4 {

namespace {

/// A conversion that is prepared but not begun.
struct Prepared {
  const Backend& backend;
  Plan plan;
  ManifestOptions manifest;
};

Plan plan_set(const ConvertOptions& options, const Input& in, const Backend& backend, int set, Problems& problems) {
  return make_plan(in.checkpoint, in.model, backend,
                   {.tp_size = options.tp_size,
                    .set = set,
                    .keep_shards = options.link,
                    .in_source_order = in.files.remote != nullptr},
                   problems);
}

const Backend& read_layout_of(const ConvertOptions& o) {
  return o.layout_file.empty() ? read_layout_file(o.layout) : read_layout(o.layout_file, o.layout);
}

/// Plans the conversion, and prints warnings and notes. Throws Error{input} with all problems, including earlier ones.
Prepared prepare(const ConvertOptions& options, const Input& in, const Destination& to, Problems& problems) {
  const bool is_file = !options.layout.empty();
  const Deployment to_engine = {.engine = options.engine,
                                .release = options.engine_version,
                                .gpu = options.gpu,
                                .tp_size = options.tp_size,
                                .no_loader = options.no_loader};
  const BackendChoice choice = is_file ? BackendChoice() : choose_backend(options.backend, in.model, to_engine);
  const std::string& layout_version = options.layout_version.empty() ? choice.layout_version : options.layout_version;
  const Backend& backend =
      is_file ? read_layout_of(options)
              : find_backend(choice.backend, options.engine, layout_version, &in.model, options.engine_version);
  check_gpu(backend, to_engine, &in.model);
  check_provable(in, backend);
  const int set = to.number(backend, options.tp_size);
  Prepared p{backend, plan_set(options, in, backend, set, problems), to.manifest_options(in)};
  p.plan.engine_version = options.engine_version;
  p.plan.engine_choice = choice.engine_choice;
  p.plan.gpu_bytes = options.gpu_bytes < 0 ? memory_of(options.gpu) : options.gpu_bytes;
  check_companions(in.checkpoint, problems);
  for (const std::string& line : problems.warnings()) warn(line);
  problems.throw_if_any();
  check_loader(backend, in.model, to_engine);
  check_shares(backend, in.model, to_engine);
  advise_ranks(p.plan);
  for (const std::string& line : in.model.notes) note(line);
  return p;
}

bool is_of_parts(const ConvertOptions& o) { return o.part || o.merge; }

/// Whether no shard has changed since OUT's manifest was written. The checksums of a packed source must be OUT's.
bool is_unchanged_since(const Input& in, const PackedCheckpoint& out) {
  if (in.known && in.known->fingerprint != out.manifest.fingerprint) return false;
  const int64_t written = state_of(open_read(out.dir + "/" + manifest_name).stat()).mtime_ns;
  return std::all_of(in.files.shards.begin(), in.files.shards.end(),
                     [&](const Shard& s) { return s.state.mtime_ns <= written; });
}

/// Opens the existing OUT. Returns null if it is unreadable.
std::unique_ptr<PackedCheckpoint> open_earlier(const ConvertOptions& options, const Folder& out, Problems& damage) try {
  return open_packed(out, options.out, damage);
} catch (const Error& e) {
  if (e.kind != ErrorKind::input) throw;
  return nullptr;
}

/// The state of an existing OUT. differs: how it differs from the run's result; empty if unknown.
struct Earlier {
  bool is_same = false;
  std::string differs;
};

/// Whether OUT has the set already, at any place in the manifest. Not checked for a single run with --force. For a part
/// with --force, the set must be the only set of OUT, and the part's share of the source is read and compared.
Earlier look_at_earlier(const ConvertOptions& options, const Input& in, const Destination& to, const Prepared& p) {
  const Folder there = in.place->folder();
  if ((options.force && !options.part) || !has_manifest(there)) return {};
  Problems damage;
  const auto opened = to.earlier() ? nullptr : open_earlier(options, there, damage);
  if (!opened && !to.earlier()) return {};
  const PackedCheckpoint& out = opened ? *opened : *to.earlier();
  const Manifest& m = out.manifest;
  const int set = set_number(m, p.backend, p.plan.tp_size);
  if (set == int(m.sets.size())) return {};
  if (!is_recorded(options, m.options, in.published))
    return {false, "it does not say that these published hashes were compared; verify --published compares them"};
  Problems none;  // the plan with the file names of OUT's set
  const Plan plan = set == p.plan.set ? p.plan : plan_set(options, in, p.backend, set, none);
  ManifestOptions made = p.manifest;
  made.model.allow_incomplete |=
      options.model.allow_incomplete && m.options.model.allow_incomplete;  // known only after reading
  if (const std::string differs = difference_of_set(plan, made, out, damage); !differs.empty()) return {false, differs};
  if (!is_of_parts(options)) {
    if (!has_same_contents(plan, in.source, in.files, m, options.threads))
      return {false, "the checkpoint's tensors have other contents"};
    const std::string damaged = damaged_tensor(out, options.threads);
    return {damaged.empty(), damaged.empty() ? "" : printable(damaged) + " does not have its checksum"};
  }
  if (!is_unchanged_since(in, out)) return {false, "the checkpoint is newer"};
  if (options.merge && !are_merged(options, p.plan, in, m)) return {};
  return {!options.force || (m.sets.size() == 1 && is_merged(options, p.plan, in, m)), ""};
}

/// Prints that OUT is unchanged, and returns what --json prints.
Json leave_as_it_is(const ConvertOptions& options, const Plan& plan, const Place& place) {
  if (options.part) return merged_part(options, plan);
  if (options.merge && options.verify) return Json{{"out", options.out}, {"unchanged", true}};  // needs the parts
  if (options.merge) remove_merged_parts(parts_beside(place), files_made(plan));                // late parts
  for (const Leftover& l : find_leftovers(place.above, place.name))
    if (l.bytes > 0)
      note(fmt::format(
          "{}: an interrupted run to replace or extend it left {}; to discard that: mxfp4-pack clean {} --remove",
          options.out, human_bytes(l.bytes), shell_word(options.out)));
  note(fmt::format("{}: {}", options.out, options.merge ? "all is merged already" : "unchanged"));
  return Json{{"out", options.out}, {"unchanged", true}};
}

/// Refuses parts if OUT exists and they cannot replace it or be added to it. With --force, OutputDir checks OUT at the
/// merge.
void refuse_what_is_in_the_way(const ConvertOptions& o, const Place& place, const std::string& differs) {
  if (!is_of_parts(o) || o.add) return;
  if (!is_taken(place.above, place.name)) return;
  if (o.part && o.force) check_replaceable(o.out, place.folder(), owned_files);
  if (o.force) return;
  fail(ErrorKind::usage, "{}: exists, and is not what its parts make{}; {}", o.out,
       differs.empty() ? "" : ": " + differs,
       o.merge
           ? "move it away, then merge"
           : "choose another place, or give all parts --add, which keeps what is there, or --force, which removes it");
}

/// Writes the whole staging directory.
void write_staged(const ConvertOptions& options, const Destination& to, Prepared& p, OutputDir& out,
                  Conversion& conversion) {
  to.begin(p.plan, out);
  conversion.carry_out_jobs();
  p.manifest.model.allow_incomplete |= conversion.has_damage();
  if (p.backend.rewrite) p.manifest.loss = to_json(conversion.loss());
  write_companions(p.plan, out, conversion.checksums(), p.manifest, to.earlier());
  for (const OutFile& f : p.plan.files)
    if (!has_size(out.built(), f.name, f.bytes))
      fail(ErrorKind::io, "{}: {} was removed meanwhile", options.out, f.name);
  throw_if_interrupted();
}

/// Completes an earlier run that wrote all of OUT and was stopped before it reported this.
void finish_earlier(const ConvertOptions& options, const Place& place, Conversion& conversion) {
  const Folder there = place.folder();
  for (const ListedFile& f : read_listed_files(there))
    if (!has_size(there, f.name, f.bytes))
      fail(ErrorKind::io, "{}: {} is missing or not whole; remove {} and convert again", options.out, f.name,
           options.out);
  conversion.read_journal();
  conversion.end_hashes();
}

/// Writes OUT, or the rest of OUT after an interrupted run.
Json write_output(const ConvertOptions& options, OutputDir& out, const Input& in, const Destination& to, Prepared& p,
                  const DeviceChoice& devices) {
  ContentsCache cache(in.files);
  const std::optional<Parts> parts = find_parts(options, p.plan, in);
  if (options.merge && !parts->missing().empty()) return missing_parts(options.out, parts->count(), parts->missing());
  const bool any_parts = (parts && !parts->all().empty()) || out.journal().records().contains(parts_taken);
  if (any_parts && !in.files.remote) refuse_to_trust_parts(options);
  OpenOptions start = open_options_of(p.plan, options, in);
  start.takes_parts = parts.has_value();
  out.open(start);
  if (parts && !out.committed()) parts->move_into(out);
  const bool takes_parts = out.journal().records().contains(parts_taken);
  const bool trusts_parts = takes_parts && !in.files.remote;  // a server's bytes are restored from OUT and compared
  if (trusts_parts && !in.published.empty()) drop_published(options, p.manifest);
  Conversion conversion(p.plan, options, devices, in.source, out, in.known);
  if (!takes_parts) conversion.compare_with(in.files, in.published);
  if (options.merge && !options.verify) leave_out(*parts, conversion);
  if (out.committed())
    finish_earlier(options, *in.place, conversion);
  else
    write_staged(options, to, p, out, conversion);
  if (!trusts_parts && !out.committed()) prove_published(options, in, conversion.compared(), out);
  to.end();
  out.commit(manifest_name);
  cache.put(fingerprint_of(p.plan, source_checksums(p.plan, conversion.checksums())));
  return report(options, in, trusts_parts ? PublishedList() : in.published, p.plan, devices, conversion);
}

/// The place of OUT. place: null for a dry run. output: null for that and a part, and if the file system is read-only.
struct Target {
  const Place* place = nullptr;
  OutputDir* output = nullptr;
};

/// Carries out one conversion of a model. `in` has the source of its bytes.
Json convert_model(const ConvertOptions& options, OutputDir* output, const Input& in, const Destination& to,
                   Problems& problems) {
  Prepared p = prepare(options, in, to, problems);
  if (options.dry_run) {
    to.check(p.plan);
    show_plan(options, p.plan);
    if (!in.published.empty()) note("a dry run reads no tensors: only hashes of small files are compared");
    return {};
  }
  const Earlier earlier = look_at_earlier(options, in, to, p);
  if (earlier.is_same) return leave_as_it_is(options, p.plan, *in.place);
  if (options.add && !earlier.differs.empty())
    fail(ErrorKind::usage, "{}: {} exists already, but {}; choose another place", options.out,
         describe(to.earlier()->manifest.sets[size_t(p.plan.set)]), earlier.differs);
  refuse_what_is_in_the_way(options, *in.place, earlier.differs);
  refuse_to_replace(options, p.plan, in, earlier.differs);
  const DeviceChoice devices = choose_device(options.device, PackingWork{options.threads, p.plan.packed_bytes});
  note_choices(options, p.plan, devices);
  to.check(p.plan);  // before leftovers of an earlier run are removed
  if (options.part) return convert_part(options, p.plan, in, devices);
  if (output) return write_output(options, *output, in, to, p, devices);
  OutputDir late(in.place->again(), options.out, owned_files);
  return write_output(options, late, in, to, p, devices);
}

Extent extent_of(const ConvertOptions& o) { return o.dry_run ? Extent::headers : Extent::all; }

Json convert_checkpoint(ConvertOptions options, const Target& target) {
  Problems problems;
  const Checkpoint checkpoint = open_checkpoint(options.checkpoint, problems, options.links, extent_of(options));
  const Model model = recognise(checkpoint, options.model, problems);
  // OUT records missing tensors only if there are any.
  if (!model.family.empty())
    options.is_incomplete = check_complete(checkpoint, options.model.allow_incomplete, problems);
  const PublishedList published = published_of(options, checkpoint, problems);
  options.skips_published = skips_published(options, checkpoint);
  const NewOutput to(options, target.place);
  if (problems.any()) {
    for (const std::string& line : problems.warnings()) warn(line);
    problems.throw_if_any();
  }
  const auto source = read_from(checkpoint);
  const Input in{checkpoint, model, *source, checkpoint, nullptr, published, target.place};
  return convert_model(options, target.output, in, to, problems);
}

/// Reads an output's source as its manifest says. Refuses an option that says otherwise. --allow-incomplete permits
/// more than was needed.
void take_recorded(ModelOptions& asked, ModelOptions made, const std::string& out) {
  const Json recorded = to_json(made);
  visit_recorded(asked, [&](const char* name, auto& value) {
    if (value == std::decay_t<decltype(value)>()) recorded.at(name).get_to(value);
  });
  made.allow_incomplete = asked.allow_incomplete;
  if (const std::string differs = difference_of(made, asked); !differs.empty())
    fail(ErrorKind::usage, "{}: {}", out, differs);
}

/// Converts a packed output to another form. The bytes are the same as from the original checkpoint, which is not
/// needed.
Json convert_packed(ConvertOptions options, const Target& target) {
  refuse_published(options);
  if (options.link) fail(ErrorKind::usage, "{}: is packed; --link needs a checkpoint's own shards", options.checkpoint);
  Problems problems;
  const auto packed = open_packed(options.checkpoint, problems);
  problems.throw_if_any();
  take_recorded(options.model, packed->manifest.options.model, options.checkpoint);
  options.is_incomplete = check_complete(packed->manifest.source, options.model.allow_incomplete, problems);
  const NewOutput to(options, target.place);
  check_kinds(*packed);
  const auto source = read_from(*packed, packed->unpackable_set());
  const Checkpoint& names = packed->manifest.source;
  const Input in{names, packed->model, *source, names, &packed->manifest, {}, target.place};
  return convert_model(options, target.output, in, to, problems);
}

/// Adds a set to OUT. The plan uses OUT's tensor names, like OUT's earlier sets, and CKPT's bytes. CKPT is opened
/// first, so that memory for its headers is free before OUT is opened.
Json add_set(ConvertOptions options, const Target& target) {
  Problems problems;
  const bool is_packed = has_manifest(options.checkpoint);
  const auto packed = is_packed ? open_packed(options.checkpoint, problems) : nullptr;
  const Checkpoint checkpoint =
      is_packed ? Checkpoint() : open_checkpoint(options.checkpoint, problems, options.links, extent_of(options));
  const PublishedList published = published_of(options, checkpoint, problems);
  problems.throw_if_any();
  const auto out = open_packed(folder_of(options, target.place), options.out, problems);
  if (!problems.any()) check_files(*out, problems);
  problems.throw_if_any();
  const ModelOptions& made = out->manifest.options.model;
  take_recorded(options.model, made, options.out);
  options.is_incomplete = made.allow_incomplete;
  const Checkpoint& names = out->manifest.source;
  check_same_form(is_packed ? packed->manifest.source : checkpoint, *out);
  if (!is_packed && !options.dry_run)
    if (const std::string differs = difference_of_files(checkpoint, out->manifest); !differs.empty())
      refuse_source(checkpoint.dir, *out, differs);
  const auto source = is_packed ? read_from(*packed, packed->unpackable_set()) : read_by_name(checkpoint);
  const Input in{names,          out->model, *source,     is_packed ? packed->manifest.source : checkpoint,
                 &out->manifest, published,  target.place};
  return convert_model(options, target.output, in, AddedSet(options, *out), problems);
}

Json convert_to(const ConvertOptions& options, const Target& target) {
  if (options.add) return add_set(options, target);
  return has_manifest(options.checkpoint) ? convert_packed(options, target) : convert_checkpoint(options, target);
}

}  // namespace

void settle_names(ConvertOptions& o) {
  settle_engine(o.engine, o.engine_version);
  o.backend = backend_called(o.backend, o.engine, o.gpu);
}

Json convert(const ConvertOptions& options) {
  if (!options.layout.empty())  // reports errors in these options first
    read_layout_of(options);
  else if (options.backend != "auto")
    find_backend(options.backend, options.engine, options.layout_version, nullptr, options.engine_version);
  if (options.dry_run) {
    refuse_link(options.out);
    check_not_in_output(options.out);
    return convert_to(options, {});
  }
  const Place place = place_of(options.out);
  std::optional<MergeClaim> claim;  // claims the existing parts
  if (!options.part) claim.emplace(place, options.out);
  return convert(options, place);
}

Json convert(const ConvertOptions& options, const Place& place) {
  if (!is_own_source(options, place)) check_apart(options.out, place, options.checkpoint);
  check_not_in_output(options.out, place.above);
  std::optional<OutputDir> output;  // locks OUT before anything in it is read; needs no lock if nobody can replace it
  if (!options.part && !is_fixed_output(place)) output.emplace(place.again(), options.out, owned_files);
  return convert_to(options, {&place, output ? &*output : nullptr});
}

}  // namespace mxfp4
