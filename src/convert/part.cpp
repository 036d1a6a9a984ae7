#include "src/convert/part.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "src/backends/serve.h"
#include "src/base/log.h"
#include "src/convert/run_identity.h"
#include "src/convert/unchanged.h"
#include "src/io/leftover.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

void check_same(const std::string& out, const PartFolder& part, const JournalHead& head, int count) {
  const PartNumber& n = part.number;
  std::string why;
  if (n.count != count)
    why = fmt::format("is one of {0}, not of {1}; write the others with --part I/{0}", n.count, count);
  if (part.record.head.options != head.options)
    why = "was made with other options, of which --add and --force are two, or by another version";
  if (part.record.head.source != head.source) why = "was made from another source, or the source has changed";
  if (why.empty()) return;
  fail(ErrorKind::usage,
       "{}: part {} of {} {}; to begin anew remove all parts of this output: rm -r {}; or convert it whole, with "
       "--restart",
       out, n.index, n.count, why, shell_word(fs::path(part.dir).parent_path().string()));
}

/// What a single run with other options has begun: merge() could not go on with it.
void refuse_another_run(const ConvertOptions& options, const Plan& plan) {
  const std::string place = place_of(options.out, ""), path = hidden_beside(place).journal;
  if (!is_there(path)) return;
  const JournalText run = read_journal(open_read(path));
  const bool is_finished = !run.proof.file.empty();
  if (run.records.empty() || is_finished || run.head.options == open_options_of(plan, options).options) return;
  fail(ErrorKind::usage,
       "{}: a partial output of a run with other options is there; finish it with convert --resume, or remove it: "
       "mxfp4-pack clean {} --remove",
       options.out, shell_word(fs::path(place).parent_path().string()));
}

/// The folder of parts goes with the last that is in it, as where the first one fails.
class FolderOfParts {
 public:
  explicit FolderOfParts(std::string dir) : dir_(std::move(dir)) {}
  ~FolderOfParts() { ::rmdir(dir_.c_str()); }
  FolderOfParts(const FolderOfParts&) = delete;

 private:
  std::string dir_;
};

/// By which another output in OUT's place is told from the one before, or from none.
FileState manifest_of(const std::string& out) {
  struct stat s;
  return ::stat((out + "/" + manifest_name).c_str(), &s) == 0 ? state_of(s) : FileState();
}

void remove_late_part(const std::string& dir) {
  try {
    remove_part(dir);
  } catch (const std::exception&) {  // the next merge does it
  }
}

/// True at every index that is of this part.
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

/// What is to be done, and the bytes of the files that are written.
struct PartSize {
  int files = 0, jobs = 0;
  int64_t bytes = 0;
  bool is_empty() const { return files == 0 && jobs == 0; }
};

PartSize size_of(const Plan& plan, const Deal& deal, int part) {
  PartSize size;
  for (size_t f = 0; f < plan.files.size(); ++f)
    if (deal.of_file[f] == part) {
      ++size.files;
      size.bytes += plan.files[f].bytes;
    }
  size.jobs = int(std::count(deal.of_job.begin(), deal.of_job.end(), part));
  return size;
}

/// Says how it ended.
Json report_part(const ConvertOptions& options, const PartSize& size, bool unchanged, const std::string& how) {
  const PartNumber& part = *options.part;
  note(fmt::format("{}: part {} of {}: {} files, {}, {}", options.out, part.index, part.count, size.files,
                   human_bytes(size.bytes), how));
  return {{"out", options.out},  {"part", part.index},  {"parts", part.count},
          {"files", size.files}, {"bytes", size.bytes}, {"unchanged", unchanged}};
}

/// Writes a part as `name`; the seconds of its stages.
Json write_part(const ConvertOptions& options, const Plan& plan, const Input& in, const DeviceChoice& devices,
                const Deal& deal, const std::string& name) {
  const PartNumber& part = *options.part;
  const std::string place = place_of(options.out, is_own_source(options) ? "" : options.checkpoint);
  OutputDir out = OutputDir::for_part(place, name, options.checkpoint);
  JournalHead head = part_head_of(plan, options, in);
  for (size_t f = 0; f < plan.files.size(); ++f)
    if (deal.of_file[f] == part.index) head.made.push_back(plan.files[f].name);
  std::vector<std::string> made = head.made;
  made.push_back(part_record);
  out.open(
      {.options = head.options, .source = head.source, .made = made, .bytes = size_of(plan, deal, part.index).bytes});
  Conversion conversion(plan, options, devices, in.source, out, in.known);
  conversion.leave_out(all_but(deal.of_job, part.index), all_but(deal.of_file, part.index));
  conversion.run();
  {
    head.run = run_of(part, command_of(options, plan));
    Journal record(out.path(part_record), options.out);
    record.begin(head);
    for (const auto& [job, line] : out.journal().records()) record.add(job, line);
    record.sync();
  }
  out.commit();
  return conversion.seconds();
}

}  // namespace

bool has_size(const std::string& path, int64_t bytes) {
  struct stat s;
  return ::lstat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && s.st_size == bytes;
}

std::string parts_of(const std::string& out) { return hidden_beside(place_of(out, "")).parts; }

Json merged_part(const ConvertOptions& options, const Plan& plan) {
  const PartNumber& part = *options.part;
  return report_part(options, size_of(plan, deal(plan, part.count), part.index), true, "all is merged already");
}

bool is_merged(const ConvertOptions& options, const Plan& plan, const Input& in, const Manifest& out) {
  const PartNumber& part = *options.part;
  const Deal dealt = deal(plan, part.count);
  if (!read_parts(parts_of(options.out)).empty() || size_of(plan, dealt, part.index).files == 0) return false;
  const Checksums sums = read_sums(plan, in.source, options.threads, only(dealt.of_job, part.index));
  return has_same_tensors(plan, sums, only(dealt.of_file, part.index), out);
}

Json convert_part(const ConvertOptions& options, const Plan& plan, const Input& in, const DeviceChoice& devices) {
  const PartNumber& part = *options.part;
  const bool is_new = !options.force && !options.add;  // nothing was in OUT's place when this was looked at
  const FileState before = is_new ? FileState() : manifest_of(options.out);
  const Parts parts(options, plan, in, part.count);
  const PartSize size = size_of(plan, parts.dealt(), part.index);
  if (size.is_empty()) return report_part(options, size, true, "nothing to write");
  if (parts.has(part.index)) return report_part(options, size, true, "done already");
  refuse_another_run(options, plan);
  const FolderOfParts folder(parts_of(options.out));
  const std::string name = new_part_name(part);
  Json seconds;
  try {
    seconds = write_part(options, plan, in, devices, parts.dealt(), name);
  } catch (const Error& e) {  // a merge of all parts removes one that is written twice
    if (e.kind == ErrorKind::interrupted || manifest_of(options.out) == before) throw;
  }
  if (manifest_of(options.out) != before) {
    remove_late_part(parts_of(options.out) + "/" + name);
    return report_part(options, size, true, "done already, and all is merged");
  }
  Json result = report_part(options, size, false, "in " + human_seconds(seconds.value("wall", 0.0)));
  result["seconds"] = seconds;
  return result;
}

Json command_of(const ConvertOptions& o, const Plan& plan) {
  const bool is_file = !o.layout.empty();
  return {{"checkpoint", fs::canonical(o.checkpoint).string()},
          {"backend", is_file ? "" : plan.backend->name},
          {"engine", is_file ? "" : plan.backend->engine},
          {"layout_version", is_file ? "" : plan.backend->layout_version},
          {"layout", o.layout},
          {"layout_file", is_file ? parse_json(plan.backend->layout_file, o.layout) : Json()},
          {"engine_version", o.engine_version},
          {"gate_up", o.model.gate_up},
          {"allow_nan_scales", o.allow_nan_scales},
          {"tp_size", o.tp_size},
          {"rank", o.rank},
          {"link", o.link ? int(*o.link) : -1},
          {"sha256", o.sha256},
          {"add", o.add},
          {"force", o.force}};
}

ConvertOptions read_command(const Json& command) {
  ConvertOptions o;
  command.at("checkpoint").get_to(o.checkpoint);
  command.at("backend").get_to(o.backend);
  command.at("engine").get_to(o.engine);
  command.at("layout_version").get_to(o.layout_version);
  command.at("layout").get_to(o.layout);
  if (!o.layout.empty()) o.layout_file = command.at("layout_file").dump();
  command.at("engine_version").get_to(o.engine_version);
  command.at("gate_up").get_to(o.model.gate_up);
  command.at("allow_nan_scales").get_to(o.allow_nan_scales);
  command.at("tp_size").get_to(o.tp_size);
  command.at("rank").get_to(o.rank);
  if (const int link = command.at("link"); link >= 0) o.link = Link(link);
  command.at("sha256").get_to(o.sha256);
  command.at("add").get_to(o.add);
  command.at("force").get_to(o.force);
  return o;
}

Parts::Parts(const ConvertOptions& options, const Plan& plan, const Input& in, int count)
    : plan_(plan), partial_(hidden_beside(place_of(options.out, "")).partial), all_(read_parts(parts_of(options.out))) {
  if (count == 0 && !all_.empty()) count = all_.front().number.count;
  const JournalHead head = part_head_of(plan, options, in);
  for (const PartFolder& part : all_) check_same(options.out, part, head, count);
  deal_ = deal(plan, std::max(count, 1));
  found_.resize(size_t(std::max(count, 1)));
  for (const PartFolder& part : all_)
    if (const PartFolder*& found = found_[size_t(part.number.index)]; !found && is_whole(part)) found = &part;
}

/// A file that is not in the part's folder was moved by an earlier merge.
bool Parts::is_whole(const PartFolder& part) const {
  for (size_t f = 0; f < plan_.files.size(); ++f) {
    const OutFile& file = plan_.files[f];
    if (deal_.of_file[f] == part.number.index && !has_size(part.dir + "/" + file.name, file.bytes) &&
        !has_size(partial_ + "/" + file.name, file.bytes))
      return false;
  }
  for (size_t j = 0; j < plan_.jobs.size(); ++j)
    if (deal_.of_job[j] == part.number.index && !part.record.records.count(int64_t(j))) return false;
  return true;
}

std::vector<int> Parts::missing() const {
  std::set<int> numbers;
  for (const auto* part_of : {&deal_.of_file, &deal_.of_job})
    for (const int p : *part_of)
      if (!has(p)) numbers.insert(p);
  return {numbers.begin(), numbers.end()};
}

void Parts::move_into(OutputDir& out) const {
  for (const PartFolder* part : found_) {
    if (!part) continue;
    for (const auto& [job, record] : part->record.records) out.journal().add(job, record);
  }
  out.journal().sync();  // a part whose files are not in its folder any more is known by it
  out.keep(true);
  for (size_t f = 0; f < plan_.files.size(); ++f) {
    const PartFolder* part = found_[size_t(deal_.of_file[f])];
    const std::string& name = plan_.files[f].name;
    if (part && fs::exists(fs::symlink_status(part->dir + "/" + name))) out.take(part->dir + "/" + name, name);
  }
}

void Parts::leave_out(Conversion& conversion) const {
  std::vector<bool> jobs, files;
  for (const int p : deal_.of_job) jobs.push_back(has(p));
  for (const int p : deal_.of_file) files.push_back(has(p));
  conversion.leave_out(std::move(jobs), std::move(files));
}

}  // namespace mxfp4
