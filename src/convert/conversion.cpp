#include "src/convert/conversion.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/checkpoint/published.h"
#include "src/checkpoint/shard_reader.h"
#include "src/convert/finished_jobs.h"
#include "src/io/cached_pages.h"
#include "src/packed/add_set.h"
#include "src/plan/jobs.h"
#include "src/plan/rewrite.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// The last range of each job.
std::vector<TensorRange> last_ranges(const Plan& plan, const std::vector<int64_t>& jobs) {
  std::vector<TensorRange> ends;
  for (const int64_t job : jobs) ends.push_back(pieces_in(plan, plan.jobs[size_t(job)]).list.back().range);
  return ends;
}

/// The ranges that each job reads, in order.
std::vector<std::vector<TensorRange>> all_ranges(const Plan& plan, const std::vector<int64_t>& jobs) {
  std::vector<std::vector<TensorRange>> ranges;
  for (const int64_t job : jobs) ranges.push_back(pieces_in(plan, plan.jobs[size_t(job)]).ranges());
  return ranges;
}

}  // namespace

void Conversion::carry_out_jobs() {
  open_files();
  const std::vector<int64_t> left = jobs_left();
  out_.keep(true);
  int64_t bytes = 0;
  for (const int64_t i : left) bytes += bytes_of(plan_, plan_.jobs[size_t(i)]);
  measure(left);
  Progress progress("packing", bytes);
  drop_if_refused([&] {
    run_all(left, progress);
    check_source();
  });
  files_.close_all([&](size_t i, DirectFile& file) {
    throw_if_interrupted();
    if (file.fd().stat().st_nlink == 0) fail(ErrorKind::io, "{}: was removed during the run", file.fd().name());
    if (!is_linked_[i] && !write_way_) write_way_ = file.write_way();
    phases_.time(Phase::sync, [&] {
      if (is_linked_[i])
        file.fd().sync();
      else
        file.finish();
    });
    note_detail(fmt::format("{}: written, {}", plan_.files[i].name, human_bytes(plan_.files[i].bytes)));
  });
}

void Conversion::run_all(std::vector<int64_t> jobs, Progress& progress) {
  if (const auto order = source_.expect(all_ranges(plan_, jobs), published_); !order.empty()) {
    const std::vector<int64_t> given = std::move(jobs);
    jobs.clear();
    for (const int64_t i : order) jobs.push_back(given[size_t(i)]);
  }
  if (hashes_) hashes_->set_jobs(last_ranges(plan_, jobs));
  const auto work = [&](Worker& worker, int64_t next) {
    const int64_t i = hashes_ ? hashes_->next() : next;
    if (source_.any_wrong() || (hashes_ && hashes_->any_wrong())) failed_ = true;
    run_job(worker, jobs[size_t(i)], progress);
    if (hashes_) hashes_->done(i);
  };
  run_jobs(int64_t(jobs.size()), options_.threads, work, devices_);
  compare_arrived();
  end_hashes();
}

void Conversion::compare_arrived() {
  if (failed_ && !source_.any_wrong()) return;  // not all bytes were read
  for (const auto& [name, is] : source_.arrived()) {
    compare_published(*find(published_, name), is, problems_);
    compared_.insert(name);
  }
  problems_.throw_if_any();
}

void Conversion::end_hashes() {
  if (!hashes_) return;
  hashes_->finish(options_.threads);
  hashes_->report(problems_);
  problems_.throw_if_any();
}

void Conversion::run_job(Worker& worker, int64_t index, Progress& progress) {
  const Job& job = plan_.jobs[size_t(index)];
  JobCounts& counts = counts_[size_t(index)];
  progress.add(std::visit([&](const auto& j) { return carry_out(worker, j, counts); }, job));
  if (!failed_) out_.journal().add(index, record_of(plan_, job, sums_, counts));
}

std::vector<bool> Conversion::read_journal() {
  std::vector<bool> done(plan_.jobs.size());
  for (const auto& [index, record] : out_.journal().records())
    if (index >= 0 && size_t(index) < done.size())
      done[size_t(index)] = read_record(plan_, plan_.jobs[size_t(index)], record, sums_, counts_[size_t(index)]);
  return done;
}

JobCounts Conversion::total() const {
  JobCounts sum;
  for (const JobCounts& c : counts_) {
    sum.zero_scales += c.zero_scales;
    add(sum.loss, c.loss);
  }
  return sum;
}

void Conversion::open_files() {
  int64_t bytes = 0;
  for (size_t i = 0; i < plan_.files.size(); ++i)
    if (!others_files_[i]) bytes += plan_.files[i].bytes;
  writes_ = writes_of(bytes);
  is_linked_.resize(plan_.files.size());
  for (size_t i = 0; i < plan_.files.size(); ++i) {
    const OutFile& f = plan_.files[i];
    if (others_files_[i]) continue;
    is_linked_[i] = f.shard && f.shard->version.empty() && out_.link(open_again(*f.shard), f.name);
    const auto file = files_.get(i);
    if (!is_linked_[i]) file->write(f.header.data(), int64_t(f.header.size()), 0);
  }
}

Writes Conversion::writes_of(int64_t bytes) const {
  return CacheRoom(options_.page_cache).holds(bytes) ? Writes::kept : Writes::direct;
}

Fd Conversion::open_file(size_t file) const {
  const OutFile& f = plan_.files[file];
  return is_linked_[file] ? open_read(out_.built(), f.name) : out_.create(f.name, f.bytes);
}

std::vector<int64_t> Conversion::jobs_left() {
  std::vector<bool> done = read_journal();
  for (size_t i = 0; i < done.size(); ++i) done[i] = done[i] && !others_jobs_[i];
  const std::vector<uint8_t> good = jobs_on_disk(plan_, done, sums_, files_, options_.threads);
  std::vector<int64_t> left;
  for (size_t i = 0; i < good.size(); ++i)
    if (!good[i] && !others_jobs_[i]) {
      left.push_back(int64_t(i));
      counts_[i] = {};
    }
  if (const int64_t kept = std::count(good.begin(), good.end(), true); kept > 0)
    note(fmt::format("{} of {} steps are done already", kept, good.size()));
  return left;
}

void Conversion::drop_if_refused(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {  // a read error may be temporary: keep finished jobs unless the source has changed
    if (e.kind == ErrorKind::input || (e.kind == ErrorKind::io && is_source_changed())) out_.keep(false);
    throw;
  }
}

bool Conversion::is_source_changed() const {
  try {
    source_.check_unchanged();
  } catch (const Error& e) {
    return e.kind == ErrorKind::input;
  }
  return false;
}

void Conversion::check_source() {
  problems_.throw_if_any();
  source_.check_unchanged();
  std::vector<bool> files;  // a part has not read the sources of other parts' files
  if (options_.part) files = others_files_;
  files.flip();
  if (known_) check_same_contents(options_.checkpoint, plan_, sums_, *known_, files);
  has_damage_ = !check_contents(plan_, sums_, source_.reader(), options_.model.allow_incomplete, problems_);
  for (const std::string& line : problems_.warnings()) warn(line);
  problems_.throw_if_any();
}

void Conversion::measure(const std::vector<int64_t>& jobs) {
  for (const int64_t i : jobs) {
    const Job& job = plan_.jobs[size_t(i)];
    const auto* pack = std::get_if<PackJob>(&job);
    if (!pack) {
      most_source_ = std::max(most_source_, std::min(bytes_of(plan_, job), copied_at_once));
      continue;
    }
    const PackedTensor& t = plan_.packed[pack->target];
    const int64_t count = pack->end - pack->begin;
    const Expert& first = plan_.model->layers[size_t(t.layer)].experts[size_t(pack->begin)];
    most_source_ = std::max(most_source_, count * source_bytes(t, first));
    most_packed_ = std::max(most_packed_, count * t.slice_bytes);
  }
}

uint8_t* Conversion::source_buffer(Worker& worker, int64_t bytes, int64_t offset) const {
  worker.source.reserve(most_source_ + DirectFile::page);
  return worker.source.reserve(bytes, offset);
}

uint8_t* Conversion::packed_buffer(Worker& worker, int64_t bytes, int64_t offset) const {
  worker.packed.reserve(most_packed_ + DirectFile::page);
  return worker.packed.reserve(bytes, offset);
}

int64_t Conversion::carry_out(Worker& worker, const CopyJob& job, JobCounts&) {
  const Pieces pieces = pieces_in(plan_, job);
  PassedBytes passed = passed_bytes(pieces);
  if (pieces.list.size() > 1) return copy(worker, pieces, passed);
  const Piece& piece = pieces.list[0];
  const int64_t origin = plan_.copied[piece.tensor].offset + piece.range.offset;
  int64_t done = 0;
  for (const Pieces& part : copied_parts(pieces, origin)) done += copy(worker, part, passed);
  return done;
}

int64_t Conversion::copy(Worker& worker, const Pieces& pieces, PassedBytes& passed) {
  if (failed_) return 0;
  const Piece& first = pieces.list.front();
  const CopiedTensor& t = plan_.copied[first.tensor];
  const int64_t offset = t.offset + first.range.offset;
  const bool is_written = t.file && !is_linked_[size_t(*t.file)];
  const bool lies_as_written = is_written && files_.get(size_t(*t.file))->writes_pages();
  uint8_t* data = source_buffer(worker, pieces.source_bytes, lies_as_written ? offset : first.range.in_file());
  read(worker, pieces, data, passed);
  if (is_written) write(*t.file, data, pieces.source_bytes, offset);
  return pieces.source_bytes;
}

int64_t Conversion::carry_out(Worker& worker, const PackJob& job, JobCounts& counts) {
  const PackedTensor& t = plan_.packed[job.target];
  if (failed_ && t.part != Part::scales) return 0;
  const Pieces pieces = pieces_in(plan_, t, job.begin, job.end);
  const bool sees_source = pieces.are_canonical() && plan_.tp_size == 1;
  const bool by_device = sees_source && device_makes_checksums(worker);
  // A GPU reads rows from a page boundary. The CPU reads from any address, so the rows are read directly to their
  // place.
  uint8_t* source = source_buffer(worker, pieces.source_bytes,
                                  worker.device->makes_checksums() ? 0 : pieces.list.front().range.in_file());
  PassedBytes passed = passed_bytes(pieces);
  if (by_device) {
    phases_.time(Phase::read, [&] { source_.read(worker, pieces, source); });
    passed.scanner(source, pieces.source_bytes);
  } else {
    read(worker, pieces, source, passed);
  }
  Input input{pieces, canonical_form(worker, pieces, source, counts), counts, {}, {}};
  if (by_device) input.sums.add(passed.hasher, [&](size_t i) { return source + pieces.list[i].source_at; });
  if (plan_.backend->rewrite && t.part == Part::codes) input.scales = canonical_scales(worker, pieces);
  int64_t done = 0;
  for (size_t r = 0; r < size_t(plan_.tp_size) && !failed_; ++r) done += pack_rank(worker, job, job.target + r, input);
  return done;
}

bool Conversion::device_makes_checksums(const Worker& worker) const {
  return worker.device->makes_checksums() && !plan_.backend->rewrite;
}

std::vector<uint8_t> Conversion::canonical_scales(Worker& worker, const Pieces& codes) {
  return load_canonical(scales_beside(codes), [&](const Pieces& pieces, uint8_t* to) {
    phases_.time(Phase::read, [&] { source_.read(worker, pieces, to); });
  });
}

int64_t Conversion::pack_rank(Worker& worker, const PackJob& job, size_t target, const Input& input) {
  const PackedTensor& t = plan_.packed[target];
  const int64_t bytes = (job.end - job.begin) * t.slice_bytes;
  const int64_t offset = t.offset + job.begin * t.slice_bytes;
  uint8_t* packed = packed_buffer(worker, bytes, offset);
  PieceHasher hasher = slice_hasher(plan_, target, job.begin, job.end, sums_);
  const bool by_device = device_makes_checksums(worker);
  DeviceSums sums = input.sums;
  if (by_device) sums.add(hasher, [&](size_t i) { return packed + int64_t(i) * t.slice_bytes; });
  phases_.time(Phase::pack, [&] {
    if (plan_.backend->rewrite)
      add(input.counts.loss,
          pack_rewritten(input.pieces, t, *worker.device, input.canonical, input.scales.data(), packed));
    else
      pack_experts(input.pieces, t, *worker.device, input.canonical, packed, sums.wanted());
  });
  phases_.time(Phase::hash, [&] { sums.store(); });
  write(t.file, packed, bytes, offset, by_device ? DirectFile::BlockSink() : hashing(hasher));
  return bytes;
}

Conversion::PassedBytes Conversion::passed_bytes(const Pieces& pieces) {
  return {source_hasher(pieces, sums_), source_scanner(pieces, sums_)};
}

void Conversion::read(Worker& worker, const Pieces& pieces, uint8_t* to, PassedBytes& passed) {
  const DirectFile::BlockSink sink = [&](const uint8_t* block, int64_t bytes) {
    phases_.time(Phase::hash, [&] { passed.hasher(block, bytes), passed.scanner(block, bytes); });
  };
  phases_.time(Phase::read, [&] { source_.read(worker, pieces, to, sink); });
}

DirectFile::BlockSink Conversion::hashing(PieceHasher& hasher) {
  return [&](const uint8_t* data, int64_t bytes) { phases_.time(Phase::hash, [&] { hasher(data, bytes); }); };
}

void Conversion::write(int file, const uint8_t* data, int64_t bytes, int64_t offset,
                       const DirectFile::BlockSink& sink) {
  phases_.time(Phase::write, [&] { files_.get(size_t(file))->write(data, bytes, offset, sink); });
}

const uint8_t* Conversion::canonical_form(Worker& worker, const Pieces& pieces, uint8_t* source, JobCounts& counts) {
  const PackedTensor& t = *pieces.tensor;
  const bool same = pieces.are_canonical();
  if (same && t.part != Part::scales) return source;
  uint8_t* canonical = same ? source : worker.canonical.reserve(pieces.canonical_bytes);
  for (const Piece& p : pieces.list) {
    const ScaleReport report = to_canonical(t, p, source, canonical);
    if (t.part == Part::residual) continue;  // derived from scales that are checked elsewhere
    counts.zero_scales += report.zero;
    if (!scales_.check(pieces, p, report)) failed_ = true;
  }
  return canonical;
}

}  // namespace mxfp4
