#include "src/convert/part_run.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "src/backends/serve.h"
#include "src/base/log.h"
#include "src/io/stage.h"

namespace mxfp4 {

namespace {

/// The option for an existing OUT; empty if the command had none.
std::string way_of(const Json& command) {
  for (const char* name : {"add", "force"})
    if (const auto found = command.find(name); found != command.end() && *found == true)
      return fmt::format("--{}", name);
  return {};
}

/// Why a part is not a part of the run, and the next step for its user. Empty if it is one.
std::string why_not_of(const PartRun& run, const PartFolder& part, int count) {
  static constexpr const char* finish = "first write and merge all parts with their own command";
  const JournalHead& head = part.record.head;
  const std::string way = way_of(part.command), own = way_of({{"add", run.add}, {"force", run.force}});
  if (way != own) return fmt::format("is of a command {}; {}", way.empty() ? "without " + own : "with " + way, finish);
  if (head.source != run.head.source) return "was made from another source, or the source has changed; restore it";
  if (head.options != run.head.options)
    return fmt::format("was made with other options or by another version; {}", finish);
  const int n = part.number.count;
  return n == count ? "" : fmt::format("is one of {0}, not of {1}; write the others with --part I/{0}", n, count);
}

void check_same(const PartRun& run, const std::string& place, const PartFolder& part, int count) {
  const PartNumber& n = part.number;
  if (const std::string why = why_of_another(part, place); !why.empty())
    fail(ErrorKind::usage, "{}: part {} of {} beside it {}; move the folder of parts to that output", run.out, n.index,
         n.count, why);
  if (const std::string why = why_not_of(run, part, count); !why.empty())
    fail(ErrorKind::usage, "{}: part {} of {} {}, or discard the parts: mxfp4-pack clean {} --remove", run.out, n.index,
         n.count, why, shell_word(run.out));
}

}  // namespace

bool has_size(const Folder& folder, const std::string& name, int64_t bytes) {
  const auto s = folder ? folder.look(name) : std::nullopt;
  return s && S_ISREG(s->st_mode) && s->st_size == bytes;
}

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

Json report_part(const std::string& out, const PartNumber& part, const PartSize& size, bool unchanged,
                 const std::string& how) {
  note(fmt::format("{}: part {} of {}: {}, {}, {}", out, part.index, part.count, counted(size.files, "file"),
                   human_bytes(size.bytes), how));
  return {{"out", out},          {"part", part.index},  {"parts", part.count},
          {"files", size.files}, {"bytes", size.bytes}, {"unchanged", unchanged}};
}

Parts::Parts(const PartRun& run, int count)
    : plan_(run.plan),
      parts_(parts_beside(run.place)),
      partial_(HeldFolder(parts_.above, staged_new).folder),
      all_(read_parts(parts_)) {
  if (count == 0 && !all_.empty()) count = all_.front().number.count;
  for (const PartFolder& part : all_) check_same(run, run.place.name, part, count);
  deal_ = deal(plan_, std::max(count, 1));
  found_.resize(size_t(std::max(count, 1)));
  for (const PartFolder& part : all_)
    if (const PartFolder*& found = found_[size_t(part.number.index)]; !found && is_whole(part)) found = &part;
}

/// A file that is missing in the part's directory may have been moved by an earlier merge.
bool Parts::is_whole(const PartFolder& part) const {
  const Folder own = parts_.folder.find(part.name);
  for (size_t f = 0; f < plan_.files.size(); ++f) {
    const OutFile& file = plan_.files[f];
    if (deal_.of_file[f] == part.number.index && !has_size(own, file.name, file.bytes) &&
        !has_size(partial_, file.name, file.bytes))
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
    out.journal().add(parts_taken, part->name);
    for (const auto& [job, record] : part->record.records) out.journal().add(job, record);
  }
  out.journal().sync();  // the journal identifies parts whose files were moved
  out.keep(true);
  for (size_t f = 0; f < plan_.files.size(); ++f) {
    const PartFolder* part = found_[size_t(deal_.of_file[f])];
    const std::string& name = plan_.files[f].name;
    if (!part) continue;
    if (const Folder own = parts_.folder.find(part->name); own && own.has(name)) out.take(own, name);
  }
}

}  // namespace mxfp4
