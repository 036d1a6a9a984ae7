#include "src/convert/part.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "src/backends/serve.h"
#include "src/convert/conversion.h"
#include "src/convert/destination.h"
#include "src/convert/part_run.h"
#include "src/convert/run_identity.h"
#include "src/convert/unchanged.h"
#include "src/io/source_folder.h"
#include "src/io/stage.h"
#include "src/packed/add_set.h"
#include "src/packed/file_checks.h"
#include "src/packed/manifest_format.h"
#include "src/remote/address.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// The journal beside an output; empty if there is none, or if another file has its name. Another process may remove
/// the journal at any time.
JournalText journal_beside(const Place& place) {
  const HeldFolder stage = find_stage(place.above, place.name);
  const Fd journal = stage ? stage.folder.open(staged_journal, O_RDONLY | O_NONBLOCK) : Fd();
  return journal && S_ISREG(journal.stat().st_mode) ? read_journal(journal) : JournalText();
}

/// Refuses to start beside an interrupted single run with other options, because merge() could not continue that run.
void refuse_another_run(const ConvertOptions& options, const Plan& plan, const Input& in) {
  const Folder out = in.place->folder();
  const JournalText run = journal_beside(*in.place);
  if (run.records.empty() || run.head.options == open_options_of(plan, options, in).options) return;
  if (run.finished && holds_run(out, run.head.run)) return;  // else the run ended before its output was in place
  fail(ErrorKind::usage,
       "{}: an interrupted run with other options is there; finish that one without --part, or discard it: "
       "mxfp4-pack clean {} --remove",
       options.out, shell_word(options.out));
}

/// True at every index of this part.
std::vector<bool> only(const std::vector<int>& part_of, int part) {
  std::vector<bool> own;
  for (const int p : part_of) own.push_back(p == part);
  return own;
}

std::vector<bool> all_but(const std::vector<int>& part_of, int part) {
  std::vector<bool> others = only(part_of, part);
  others.flip();
  return others;
}

/// Removes the folder of parts and the staging directory if they are empty, for example after the first part failed.
class FolderOfParts {
 public:
  explicit FolderOfParts(const Place& place) : place_(place) {}
  ~FolderOfParts() {
    try {
      if (const HeldFolder stage(place_.above, stage_beside(place_.name)); stage) stage.folder.rmdir(staged_parts);
      remove_empty_stage(place_.above, place_.name);
    } catch (const std::exception&) {  // `clean` lists what is left
    }
  }
  FolderOfParts(const FolderOfParts&) = delete;

 private:
  const Place& place_;
};

/// The state of OUT's manifest: shows whether OUT has appeared or was replaced. Default-constructed if it is missing.
FileState state_of_output(const Place& place) {
  const Folder out = place.folder();
  const auto s = out ? out.look(manifest_name) : std::nullopt;
  return s ? state_of(*s) : FileState();
}

/// Removes a part that was written after OUT appeared, and ends the run that wrote OUT if it left this to the part.
void remove_late_part(const Place& place, const std::string& name) {
  try {
    remove_part(parts_beside(place), name);
    const JournalText run = journal_beside(place);
    if (run.finished && holds_run(place.folder(), run.head.run)) OutputDir(place.again(), place.path(), owned_files);
  } catch (const std::exception&) {  // the next merge removes it
  }
}

/// Writes a part as directory `name`. Returns the seconds of its phases.
Json write_folder(const ConvertOptions& options, const Plan& plan, const Input& in, const DeviceChoice& devices,
                  const Deal& dealt, const std::string& name) {
  const PartNumber& part = *options.part;
  OutputDir out = OutputDir::for_part(*in.place, name);
  JournalHead head = part_head_of(plan, options, in);
  for (size_t f = 0; f < plan.files.size(); ++f)
    if (dealt.of_file[f] == part.index) head.made.push_back(plan.files[f].name);
  std::vector<std::string> made = head.made;
  made.push_back(part_record);
  out.open({.options = head.options,
            .source = head.source,
            .made = made,
            .bytes = size_of(plan, dealt, part.index).bytes,
            .source_folder = in.files.folder});
  refuse_another_run(options, plan, in);
  Conversion conversion(plan, options, devices, in.source, out, in.known);
  conversion.leave_out(all_but(dealt.of_job, part.index), all_but(dealt.of_file, part.index));
  conversion.carry_out_jobs();
  {
    head.run = run_of(part, in.place->name, command_of(options, plan));
    Journal record(out.built(), part_record, options.out);
    record.begin(head);
    for (const auto& [job, line] : out.journal().records()) record.add(job, line);
    record.sync();
  }
  out.commit(part_record);
  return conversion.seconds();
}

/// Reads the records of a part's jobs into `sums`. Returns the part's files; nothing if a job's record is missing,
/// because then the part is unusable.
std::optional<std::vector<bool>> read_records(const Plan& plan, const Deal& dealt, const PartFolder& part,
                                              Checksums& sums) {
  const std::map<int64_t, std::string>& records = part.record.records;
  JobCounts counts;
  for (size_t j = 0; j < plan.jobs.size(); ++j) {
    if (dealt.of_job[j] != part.number.index) continue;
    const auto record = records.find(int64_t(j));
    if (record == records.end() || !read_record(plan, plan.jobs[j], record->second, sums, counts)) return {};
  }
  return only(dealt.of_file, part.number.index);
}

/// Calls f(name, member) for each option that a part's record keeps for the merge.
template <class O, class F>
void visit_command(O& o, const F& f) {
  visit(o, f);
  f("checkpoint", o.checkpoint);
  f("links", o.links);
  f("no_loader", o.no_loader);
  f("gpu_bytes", o.gpu_bytes);
  f("add", o.add);
  f("force", o.force);
}

}  // namespace

PartRun run_of_parts(const ConvertOptions& options, const Plan& plan, const Input& in) {
  return {options.out, *in.place, plan, part_head_of(plan, options, in), options.add, options.force};
}

std::optional<Parts> find_parts(const ConvertOptions& options, const Plan& plan, const Input& in) try {
  return std::optional<Parts>(std::in_place, run_of_parts(options, plan, in));
} catch (const Error& e) {
  if (!options.force || options.merge || e.kind != ErrorKind::usage) throw;
  return {};
}

Json merged_part(const ConvertOptions& options, const Plan& plan) {
  const PartNumber& part = *options.part;
  return report_part(options.out, part, size_of(plan, deal(plan, part.count), part.index), true,
                     "all is merged already");
}

bool is_merged(const ConvertOptions& options, const Plan& plan, const Input& in, const Manifest& out) {
  const PartNumber& part = *options.part;
  const Deal dealt = deal(plan, part.count);
  if (!read_parts(parts_beside(*in.place)).empty() || size_of(plan, dealt, part.index).files == 0) return false;
  const auto is_same = [&](const std::vector<bool>& jobs, const std::vector<bool>& files) {
    return other_tensors(plan, read_sums(plan, in.source, options.threads, jobs), out, files).empty();
  };
  return is_same(only(dealt.of_job, part.index), only(dealt.of_file, part.index)) &&
         is_same(all_but(dealt.of_job, part.index), all_but(dealt.of_file, part.index));
}

bool are_merged(const ConvertOptions& options, const Plan& plan, const Input& in, const Manifest& out) {
  const Parts parts(run_of_parts(options, plan, in));
  const std::vector<PartFolder>& all = parts.all();
  return std::all_of(all.begin(), all.end(), [&](const PartFolder& part) {
    Checksums sums(plan);
    const std::optional<std::vector<bool>> files = read_records(plan, parts.dealt(), part, sums);
    return !files || other_tensors(plan, sums, out, *files).empty();
  });
}

Json convert_part(const ConvertOptions& options, const Plan& plan, const Input& in, const DeviceChoice& devices) {
  const PartNumber& part = *options.part;
  const bool is_new = !options.force && !options.add;  // else OUT existed when this run began
  const auto state = [&] { return state_of_output(*in.place); };
  const FileState before = is_new ? FileState() : state();
  const Parts parts(run_of_parts(options, plan, in), part.count);
  const PartSize size = size_of(plan, parts.dealt(), part.index);
  if (size.files == 0 && size.jobs == 0) return report_part(options.out, part, size, true, "nothing to write");
  if (parts.has(part.index)) return report_part(options.out, part, size, true, "done already");
  const FolderOfParts folder(*in.place);
  const std::string name = new_part_name(part);
  Json seconds;
  try {
    seconds = write_folder(options, plan, in, devices, parts.dealt(), name);
  } catch (const Error& e) {  // a merge of all parts removes a part that is written twice
    if (e.kind == ErrorKind::interrupted || state() == before) throw;
  }
  if (state() != before) {
    remove_late_part(*in.place, name);
    return report_part(options.out, part, size, true, "done already, and all is merged");
  }
  Json result = report_part(options.out, part, size, false, "in " + human_seconds(seconds.value("wall", 0.0)));
  result["seconds"] = seconds;
  return result;
}

void leave_out(const Parts& parts, Conversion& conversion) {
  std::vector<bool> jobs, files;
  for (const int p : parts.dealt().of_job) jobs.push_back(parts.has(p));
  for (const int p : parts.dealt().of_file) files.push_back(parts.has(p));
  conversion.leave_out(std::move(jobs), std::move(files));
}

Json command_of(const ConvertOptions& options, const Plan& plan) {
  ConvertOptions o = options;
  static_cast<Recipe&>(o) = recipe_of(options, plan);
  if (!is_remote(o.checkpoint)) o.checkpoint = fs::canonical(o.checkpoint).string();
  Json command;
  visit_command(o, [&](const char* name, const auto& member) { command[name] = member; });
  return command;
}

ConvertOptions read_command(const Json& command) {
  ConvertOptions o;
  visit_command(o, [&](const char* name, auto& member) { command.at(name).get_to(member); });
  return o;
}

}  // namespace mxfp4
