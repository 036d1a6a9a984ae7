#include "src/plan/jobs.h"

#include <algorithm>

#include "src/plan/canonical.h"
#include "src/plan/pieces.h"

namespace mxfp4 {

namespace {

/// For each expert, whether its bytes come next after those of the expert before, among all experts of the tensor.
/// Published files often have expert 10 after expert 1.
std::vector<bool> follow_in_source(const Plan& plan, const PackedTensor& t, int64_t count) {
  std::vector<std::pair<std::pair<int, int64_t>, int64_t>> places;
  for (int64_t e = 0; e < count; ++e) {
    const TensorRange r = pieces_in(plan, t, e, e + 1).list.front().range;
    places.push_back({{r.tensor->file, r.in_file()}, e});
  }
  std::sort(places.begin(), places.end());
  std::vector<bool> follows(places.size());
  for (size_t i = 1; i < places.size(); ++i)
    follows[size_t(places[i].second)] = places[i].second == places[i - 1].second + 1;
  return follows;
}

/// Some experts of one tensor are a job, which serves all ranks.
void add_pack_jobs(Plan& plan, const PlanOptions& options) {
  for (size_t i = 0; i < plan.packed.size(); i += size_t(plan.tp_size)) {
    const PackedTensor& t = plan.packed[i];
    const auto& experts = plan.model->layers[size_t(t.layer)].experts;
    const int64_t source = source_bytes(t, experts.front());
    const int64_t step = std::max<int64_t>(1, options.job_bytes / std::max<int64_t>(1, source));
    const auto count = int64_t(experts.size());
    const std::vector<bool> follows =
        options.in_source_order ? follow_in_source(plan, t, count) : std::vector<bool>(experts.size(), true);
    for (int64_t begin = 0, e = 1; e <= count; ++e)
      if (e == count || e == begin + step || !follows[size_t(e)]) {
        plan.jobs.push_back(PackJob{i, begin, e});
        begin = e;
      }
    plan.job_bytes =
        std::max(plan.job_bytes, std::min(step, count) * (source + source * scale_bytes(*t.parameter) + t.slice_bytes));
  }
}

/// Consecutive pieces of one file are a job.
void add_copy_jobs(Plan& plan, const PlanOptions& options) {
  auto& pieces = plan.copy_pieces;
  for (size_t i = 0; i < plan.copied.size(); ++i) {
    const Tensor* t = plan.copied[i].source;
    for (int64_t at = 0; at < t->bytes; at += copy_piece_bytes)
      pieces.push_back({i, {t, at, std::min(copy_piece_bytes, t->bytes - at)}});
  }
  for (size_t begin = 0; begin < pieces.size();) {
    size_t end = begin;
    int64_t bytes = 0;
    const auto belongs = [&, first = plan.copied[pieces[begin].copied]](const CopyPiece& p) {
      const CopiedTensor& t = plan.copied[p.copied];
      return t.file == first.file && (!options.in_source_order || t.source->file == first.source->file);
    };
    while (end < pieces.size() && belongs(pieces[end]) &&
           (end == begin || bytes + pieces[end].range.bytes <= options.job_bytes))
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

void add_jobs(Plan& plan, const PlanOptions& options) {
  add_pack_jobs(plan, options);
  add_copy_jobs(plan, options);
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
