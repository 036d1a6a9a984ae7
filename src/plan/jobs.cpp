#include "src/plan/jobs.h"

#include <algorithm>

#include "src/plan/canonical.h"

namespace mxfp4 {

namespace {

/// Some experts of one tensor are a job, which serves all ranks.
void add_pack_jobs(Plan& plan, int64_t job_bytes) {
  for (size_t i = 0; i < plan.packed.size(); i += size_t(plan.tp_size)) {
    const PackedTensor& t = plan.packed[i];
    const auto& experts = plan.model->layers[size_t(t.layer)].experts;
    const int64_t source = source_bytes(t, experts.front());
    const int64_t step = std::max<int64_t>(1, job_bytes / std::max<int64_t>(1, source));
    const auto count = int64_t(experts.size());
    for (int64_t e = 0; e < count; e += step) plan.jobs.push_back(PackJob{i, e, std::min(e + step, count)});
    plan.job_bytes =
        std::max(plan.job_bytes, std::min(step, count) * (source + source * scale_bytes(*t.parameter) + t.slice_bytes));
  }
}

/// Consecutive pieces of one file are a job.
void add_copy_jobs(Plan& plan, int64_t job_bytes) {
  auto& pieces = plan.copy_pieces;
  for (size_t i = 0; i < plan.copied.size(); ++i) {
    const Tensor* t = plan.copied[i].source;
    for (int64_t at = 0; at < t->bytes; at += copy_piece_bytes)
      pieces.push_back({i, {t, at, std::min(copy_piece_bytes, t->bytes - at)}});
  }
  for (size_t begin = 0; begin < pieces.size();) {
    size_t end = begin;
    int64_t bytes = 0;
    const std::optional<int> file = plan.copied[pieces[begin].copied].file;
    while (end < pieces.size() && plan.copied[pieces[end].copied].file == file &&
           (end == begin || bytes + pieces[end].range.bytes <= job_bytes))
      bytes += pieces[end++].range.bytes;
    plan.jobs.push_back(CopyJob{begin, end});
    plan.job_bytes = std::max(plan.job_bytes, bytes);
    begin = end;
  }
}

/// The place at which a job begins to write, as a fraction of its file's bytes.
double share_before(const Plan& plan, const Job& job) {
  const std::vector<FileRange> ranges = output_of(plan, job);
  return ranges.empty() ? 0.0 : double(ranges[0].offset) / double(plan.files[size_t(ranges[0].file)].bytes);
}

/// Orders the jobs so that all files grow at the same rate. Consecutive jobs then write to different files; writers of
/// one file would wait for each other.
void spread_jobs(Plan& plan) {
  std::vector<std::pair<double, Job>> placed;  // 0 to 1 within the file
  for (const Job& job : plan.jobs) placed.push_back({share_before(plan, job), job});
  std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::transform(placed.begin(), placed.end(), plan.jobs.begin(), [](const auto& p) { return p.second; });
}

}  // namespace

void add_jobs(Plan& plan, int64_t job_bytes) {
  add_pack_jobs(plan, job_bytes);
  add_copy_jobs(plan, job_bytes);
  spread_jobs(plan);
}

std::vector<FileRange> output_of(const Plan& plan, const Job& job) {
  std::vector<FileRange> ranges;
  if (const auto* pack = std::get_if<PackJob>(&job)) {
    for (const PackedTensor& t : plan.ranks_of(*pack))
      for (int64_t e = pack->begin; e < pack->end; ++e)
        ranges.push_back({t.file, t.offset + e * t.slice_bytes, t.slice_bytes});
    return ranges;
  }
  for (const CopyPiece& p : plan.pieces_of(std::get<CopyJob>(job)))
    if (const CopiedTensor& t = plan.copied[p.copied]; t.file)
      ranges.push_back({*t.file, t.offset + p.range.offset, p.range.bytes});
  return ranges;
}

std::vector<int> files_of(const Plan& plan, const Job& job) {
  std::vector<int> files;
  for (const FileRange& range : output_of(plan, job))
    if (files.empty() || files.back() != range.file) files.push_back(range.file);
  return files;
}

int64_t bytes_of(const Plan& plan, const Job& job) {
  int64_t bytes = 0;
  for (const FileRange& range : output_of(plan, job)) bytes += range.bytes;
  if (bytes == 0 && std::holds_alternative<CopyJob>(job))
    for (const CopyPiece& p : plan.pieces_of(std::get<CopyJob>(job))) bytes += p.range.bytes;
  return bytes;
}

}  // namespace mxfp4
