#include "src/convert.h"

#include <filesystem>
#include <mutex>
#include <set>

#include "src/add_set.h"
#include "src/companions.h"
#include "src/job_record.h"
#include "src/log.h"
#include "src/manifest.h"
#include "src/output.h"
#include "src/print_plan.h"
#include "src/rewrite.h"
#include "src/select.h"
#include "src/sha256.h"
#include "src/sharded_state.h"
#include "src/source.h"
#include "src/stages.h"
#include "src/unchanged.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// Carries out the jobs of a plan: reads, packs, hashes, writes. What the data refuse is collected, and from then on
/// scales are only checked, so that one run names every bad tensor.
class Conversion {
 public:
  /// `earlier`: of the output that the plan's set comes to, or null.
  Conversion(const Plan& plan, const ConvertOptions& options, const DeviceChoice& devices, Source& source,
             OutputDir& out, const Manifest* earlier)
      : plan_(plan),
        options_(options),
        devices_(devices),
        source_(source),
        out_(out),
        earlier_(earlier),
        sums_(plan),
        counts_(plan.jobs.size()) {}

  void run() {
    open_files();
    const std::vector<int64_t> left = jobs_left();
    out_.keep(true);
    Progress progress("packing", data_bytes());
    run_jobs(
        int64_t(left.size()), options_.threads,
        [&](Worker& worker, int64_t i) {
          const int64_t index = left[size_t(i)];
          const Job& job = plan_.jobs[size_t(index)];
          progress.add(job.target < 0 ? copy(worker, job) : pack(worker, job));
          if (!failed_) out_.journal().add(index, record_of(plan_, job, sums_, counts_of(job)));
        },
        devices_);
    check_source();
    for (size_t i = 0; i < files_.size(); ++i) {
      throw_if_interrupted();
      stages_.time(Stage::sync, [&] { is_linked_[i] ? files_[i].fd().sync() : files_[i].finish(); });
    }
  }

  /// Reads the journal: true at every job that is written down.
  std::vector<bool> read_journal() {
    std::vector<bool> done(plan_.jobs.size());
    for (const auto& [index, record] : out_.journal().records())
      if (index >= 0 && size_t(index) < done.size())
        done[size_t(index)] = read_record(plan_, plan_.jobs[size_t(index)], record, sums_, counts_[size_t(index)]);
    return done;
  }

  const Checksums& checksums() const { return sums_; }
  int64_t zero_scales() const { return total().zero_scales; }
  Humming loss() const { return total().loss; }
  /// Seconds of each stage, summed over threads.
  Json seconds() const { return stages_.seconds(); }

 private:
  JobCounts total() const {
    JobCounts sum;
    for (const JobCounts& c : counts_) {
      sum.zero_scales += c.zero_scales;
      add(sum.loss, c.loss);
    }
    return sum;
  }

  /// What the jobs write; headers and a sharded state's files are not theirs.
  int64_t data_bytes() const {
    int64_t bytes = plan_.packed_bytes;
    for (const CopiedTensor& t : plan_.copied) bytes += t.source->bytes;
    return bytes;
  }

  void open_files() {
    for (const OutFile& f : plan_.files) {
      is_linked_.push_back(f.shard >= 0 &&
                           link_file(options_.link, plan_.checkpoint->shards[size_t(f.shard)].path, out_.path(f.name)));
      files_.emplace_back(is_linked_.back() ? open_read(out_.path(f.name), f.name) : out_.create(f.name, f.bytes));
      if (!is_linked_.back()) files_.back().write(f.header.data(), int64_t(f.header.size()), 0);
    }
  }

  /// All but those that the journal has and whose bytes on disk are what it says.
  std::vector<int64_t> jobs_left() {
    const std::vector<bool> done = read_journal();
    std::vector<uint8_t> good(done.size());
    run_jobs(int64_t(done.size()), options_.threads, [&](Worker& worker, int64_t i) {
      good[size_t(i)] = done[size_t(i)] && is_on_disk(worker, plan_.jobs[size_t(i)]);
    });
    std::vector<int64_t> left;
    for (size_t i = 0; i < good.size(); ++i)
      if (!good[i]) {
        left.push_back(int64_t(i));
        counts_[i] = {};
      }
    if (left.size() < good.size())
      note(fmt::format("{} of {} jobs are done already", good.size() - left.size(), good.size()));
    return left;
  }

  bool is_on_disk(Worker& worker, const Job& job) {
    const auto has = [&](int file, int64_t offset, int64_t bytes, const Hash& hash) {
      uint8_t* data = worker.packed.reserve(bytes);
      files_[size_t(file)].read(data, bytes, offset);
      return XXH128_isEqual(hash_bytes(data, bytes), hash) != 0;
    };
    for (int64_t i = job.begin; i < job.end; ++i) {
      if (job.target < 0) {
        const CopyPiece& p = plan_.copy_pieces[size_t(i)];
        const CopiedTensor& t = plan_.copied[size_t(p.copied)];
        const Hash& sum = sums_.copied[size_t(p.copied)][size_t(p.begin / copy_piece_bytes)];
        if (t.file >= 0 && !has(t.file, t.offset + p.begin, p.bytes, sum)) return false;
      } else {
        const Checksums::Packed* sums = &sums_.packed[size_t(job.target)];
        for (const PackedTensor& t : plan_.ranks_of(job))
          if (!has(t.file, t.offset + i * t.slice_bytes, t.slice_bytes, (sums++)->slices[size_t(i)])) return false;
      }
    }
    return true;
  }

  /// A source that holds what cannot be packed, or that changed, leaves nothing to go on with.
  void check_source() {
    out_.keep(false);
    problems_.throw_if_any();
    source_.check_unchanged();
    if (earlier_) check_same_contents(options_.checkpoint, plan_, sums_, *earlier_);
    out_.keep(true);
  }

  JobCounts& counts_of(const Job& job) { return counts_[size_t(&job - plan_.jobs.data())]; }

  int64_t copy(Worker& worker, const Job& job) {
    int64_t done = 0;
    for (std::span<const CopyPiece> left = plan_.pieces_of(job); !left.empty() && !failed_;) {
      const int file = plan_.copied[size_t(left[0].copied)].file;
      size_t count = 0;
      while (count < left.size() && plan_.copied[size_t(left[count].copied)].file == file) ++count;
      done += copy_together(worker, left.first(count));
      left = left.subspan(count);
    }
    return done;
  }

  /// Pieces that lie one after the other in one file.
  int64_t copy_together(Worker& worker, std::span<const CopyPiece> pieces) {
    const CopiedTensor& first = plan_.copied[size_t(pieces[0].copied)];
    const int64_t offset = first.offset + pieces[0].begin;
    int64_t bytes = 0;
    for (const CopyPiece& p : pieces) bytes += p.bytes;
    uint8_t* data = worker.source.reserve(bytes, offset);
    stages_.time(Stage::read, [&] { source_.read_copied(plan_, pieces, data); });
    const uint8_t* at = data;
    for (const CopyPiece& p : pieces) {
      sums_.copied[size_t(p.copied)][size_t(p.begin / copy_piece_bytes)] = hash(at, p.bytes);
      at += p.bytes;
    }
    if (first.file >= 0 && !is_linked_[size_t(first.file)]) write(first.file, data, bytes, offset);
    return bytes;
  }

  int64_t pack(Worker& worker, const Job& job) {
    const PackedTensor& t = plan_.packed[size_t(job.target)];
    if (failed_ && t.part != Part::scales) return 0;
    const Pieces pieces = pieces_in(plan_, t, job.begin, job.end);
    uint8_t* source = worker.source.reserve(pieces.source_bytes);
    stages_.time(Stage::read, [&] { source_.read_pieces(worker, t, job.begin, job.end, pieces, source); });
    hash_sources(job, t, pieces, source);
    const uint8_t* canonical = canonical_form(worker, job, t, pieces, source);
    std::vector<uint8_t> scales;
    if (plan_.backend->rewrite && t.part == Part::codes) scales = scales_beside(worker, job, t);
    int64_t done = 0;
    for (size_t r = 0; r < plan_.tp.ranks.size() && !failed_; ++r)
      done += pack_rank(worker, job, size_t(job.target) + r, pieces, canonical, scales.data());
    return done;
  }

  /// Of the same experts, canonical: lossy backends rewrite codes by them.
  std::vector<uint8_t> scales_beside(Worker& worker, const Job& job, const PackedTensor& codes) {
    const PackedTensor& t = sibling(plan_, codes, Part::scales);
    return load_canonical(plan_, t, job.begin, job.end, [&](const Pieces& pieces, uint8_t* to) {
      stages_.time(Stage::read, [&] { source_.read_pieces(worker, t, job.begin, job.end, pieces, to); });
    });
  }

  int64_t pack_rank(Worker& worker, const Job& job, size_t target, const Pieces& pieces, const uint8_t* canonical,
                    const uint8_t* scales) {
    const PackedTensor& t = plan_.packed[target];
    const int64_t bytes = (job.end - job.begin) * t.slice_bytes;
    const int64_t offset = t.offset + job.begin * t.slice_bytes;
    uint8_t* packed = worker.packed.reserve(bytes, offset);
    stages_.time(Stage::pack, [&] {
      if (plan_.backend->rewrite)
        add(counts_of(job).loss,
            pack_rewritten(plan_, t, job.begin, job.end, canonical, scales, *worker.device, packed));
      else
        pack_experts(plan_, t, job.begin, job.end, pieces, *worker.device, canonical, packed);
    });
    for (int64_t e = job.begin; e < job.end; ++e)
      sums_.packed[target].slices[size_t(e)] = hash(packed + (e - job.begin) * t.slice_bytes, t.slice_bytes);
    write(t.file, packed, bytes, offset);
    return bytes;
  }

  Hash hash(const uint8_t* data, int64_t bytes) {
    return stages_.time(Stage::hash, [=] { return hash_bytes(data, bytes); });
  }

  void write(int file, const uint8_t* data, int64_t bytes, int64_t offset) {
    stages_.time(Stage::write, [&] { files_[size_t(file)].write(data, bytes, offset); });
  }

  void hash_sources(const Job& job, const PackedTensor& t, const Pieces& pieces, const uint8_t* source) {
    for (const PieceAt& p : pieces.list) {
      const SourceIndex at = source_index(plan_, t, p.expert, p.piece);
      sums_.packed[size_t(job.target)].sources[at.tensor][at.piece] = hash(source + p.source_at, p.slice.piece_bytes);
    }
  }

  /// The pieces in canonical form: `source` itself where the bytes are the same.
  const uint8_t* canonical_form(Worker& worker, const Job& job, const PackedTensor& t, const Pieces& pieces,
                                uint8_t* source) {
    const bool same = pieces.source_bytes == pieces.canonical_bytes;
    if (same && t.part != Part::scales) return source;
    uint8_t* canonical = same ? source : worker.canonical.reserve(pieces.canonical_bytes);
    for (const PieceAt& p : pieces.list)
      check_scales(job, t, p, to_canonical(t, p, options_.allow_nan_scales, source, canonical));
    return canonical;
  }

  void check_scales(const Job& job, const PackedTensor& t, const PieceAt& p, const ScaleReport& r) {
    if (t.part == Part::residual) return;  // made of scales that are checked elsewhere
    counts_of(job).zero_scales += r.zero;
    if (r.bad) complain(t, p, r.first_bad, fmt::format("{} ({} such scales here)", r.first, r.bad));
    if (!r.zero_floats) return;
    if (r.least_floats)
      complain(t, p, r.first_zero_float, "holds both 0.0 and 2^-127, which would become the same byte");
    else if (const int64_t at = source_.reader() ? first_nonzero_group(t, p) : -1; at >= 0)
      complain(t, p, at, "scale 0.0 over codes that are not zero");
    uint8_t& zero = sums_.packed[size_t(job.target)].float_zeros[source_index(plan_, t, p.expert, p.piece).tensor];
    std::atomic_ref(zero).store(1, std::memory_order_relaxed);  // jobs of one stacked tensor share it
  }

  /// The first scale 0.0 of the piece whose 32 codes are not all zero; -1 where there is none.
  int64_t first_nonzero_group(const PackedTensor& t, const PieceAt& p) {
    const Expert& e = plan_.model->layers[size_t(t.layer)].experts[size_t(p.expert)];
    const Slice& codes = t.role == Role::w2 ? e.down.codes : p.piece == 1 ? e.up.codes : e.gate.codes;
    std::vector<float> scales(size_t(p.slice.piece_bytes / 4));
    const ShardReader& reader = *source_.reader();
    reader.read(*p.slice.tensor, p.slice.piece, p.slice.piece_bytes, scales.data());
    for (size_t i = 0; i < scales.size(); ++i) {
      if (scales[i] != 0) continue;
      uint8_t bytes[group / 2];
      reader.read(*codes.tensor, codes.piece + int64_t(i) * group / 2, group / 2, bytes);
      for (uint8_t b : bytes)
        if (b & 0x77) return int64_t(i);
    }
    return -1;
  }

  /// Names file, tensor, expert, row and group of scale `index` of a piece.
  void complain(const PackedTensor& t, const PieceAt& p, int64_t index, const std::string& what) {
    const MoeLayer& layer = plan_.model->layers[size_t(t.layer)];
    const int64_t columns = (t.role == Role::w2 ? layer.intermediate : layer.hidden) / group;
    const std::lock_guard lock(mutex_);
    problems_.error(plan_.checkpoint->where(*p.slice.tensor), "expert {}, row {}, group {}: {}", p.expert,
                    index / columns, index % columns, what);
    failed_ = true;
  }

  const Plan& plan_;
  const ConvertOptions& options_;
  const DeviceChoice& devices_;
  Source& source_;
  OutputDir& out_;
  const Manifest* earlier_;
  Checksums sums_;
  std::vector<JobCounts> counts_;
  std::vector<DirectFile> files_;
  std::vector<bool> is_linked_;  // of each file: its bytes are the source's own
  Stages stages_;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  Problems problems_;
};

std::string checksum_of(const std::string& text) { return to_hex(hash_bytes(text.data(), int64_t(text.size()))); }

/// Everything that a run's bytes depend on: the plan with the options behind it, and the source's files as they are.
Start start_of(const Plan& plan, const ConvertOptions& options) {
  const Backend& b = *plan.backend;
  std::string given = fmt::format("{} {} {} {} {} {} {} {}\n", MXFP4_VERSION, format_version, b.name, b.engine,
                                  b.layout_version, options.model.gate_up, options.allow_nan_scales, plan.tp.size);
  for (const OutFile& f : plan.files) given += fmt::format("{} {} {}\n", f.name, f.bytes, checksum_of(f.header));
  for (const Job& j : plan.jobs) given += fmt::format("{} {} {}\n", j.target, j.begin, j.end);
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(options.checkpoint))
    if (struct stat s; entry.path().extension() == ".safetensors" && ::stat(entry.path().c_str(), &s) == 0) {
      const FileState state = state_of(s);
      files.insert(fmt::format("{} {} {} {}", entry.path().lexically_relative(options.checkpoint).string(), state.bytes,
                               state.mtime_ns, state.inode));
    }
  const Checkpoint& ck = *plan.checkpoint;
  const std::string source =
      fmt::format("{} {} {}", fmt::join(files, "\n"), checksum_of(ck.config_text), checksum_of(ck.index_text));
  return {options.leftover, checksum_of(given), checksum_of(source)};
}

void report_left_out(const Checkpoint& ck) {
  if (!ck.left_out.empty())
    note(fmt::format("not carried along: {}", printable(fmt::format("{}", fmt::join(ck.left_out, ", ")))));
}

}  // namespace

namespace {

TensorParallel tensor_parallel(const ConvertOptions& o) {
  TensorParallel tp{o.tp_size, {}};
  if (o.rank >= o.tp_size) fail(Kind::usage, "--rank {} is not below --tp-size {}", o.rank, o.tp_size);
  for (int r = 0; r < o.tp_size; ++r)
    if (o.rank < 0 || o.rank == r) tp.ranks.push_back(r);
  return tp;
}

/// The backend asked for, or the one that the engine would choose, with the reason.
std::string chosen_backend(const ConvertOptions& o, const Model& model) {
  if (o.backend != "auto") return o.backend;
  const Choice c = select_backend(model, {o.engine, o.gpu, o.phase});
  note(fmt::format("--backend auto: {}: {}", c.backend, c.why));
  if (!c.alternatives.empty()) note(fmt::format("alternatives: {}", fmt::join(c.alternatives, ", ")));
  return c.backend;
}

/// What is converted, and where its bytes come from.
struct Input {
  const Checkpoint& checkpoint;
  const Model& model;
  Source& source;
  const Checkpoint& files;                    // which the source reads
  const PackedCheckpoint* earlier = nullptr;  // OUT, where a set is added to it
};

/// Where the plan's set stands in OUT: behind those that are there, or where --if-changed may find it.
int set_in_out(const ConvertOptions& options, const Input& in, const Backend& backend) {
  if (in.earlier) return set_number(in.earlier->manifest, backend, tensor_parallel(options));
  if (!options.if_changed || !fs::exists(fs::path(options.out) / manifest_name)) return 0;
  const Manifest m = read_manifest(options.out);
  const int number = set_number(m, backend, tensor_parallel(options));
  return number < int(m.sets.size()) ? number : 0;
}

OutputDir open_out(const ConvertOptions& options, const Input& in, const Plan& plan) {
  OutputDir::Made made;
  if (options.force || options.if_changed) made = files_made_in;
  if (in.earlier) made = files_below;  // all are kept
  const bool itself = in.earlier && fs::equivalent(options.checkpoint, options.out);
  return OutputDir(options.out, itself ? "" : options.checkpoint, made, start_of(plan, options));
}

void report(const ConvertOptions& options, const Input& in, const Plan& plan, const Conversion& conversion) {
  report_left_out(in.checkpoint);
  if (conversion.zero_scales())
    note(fmt::format("{} scales are 0x00 (2^-127); Marlin and Hopper kernels read them as 0.0",
                     conversion.zero_scales()));
  if (plan.backend->rewrite) note(describe_loss(conversion.loss()));
  if (!options.json) note_result(plan, options.out);
}

/// Plans and carries out one conversion of a model whose bytes the source gives.
Json run(const ConvertOptions& options, const Input& in, Problems& problems) {
  const Backend& backend =
      find_backend(chosen_backend(options, in.model), options.engine, options.layout_version, &in.model);
  const auto plan_as = [&](int set) {
    return make_plan(in.checkpoint, in.model, backend,
                     {.tp = tensor_parallel(options),
                      .set = set,
                      .max_file_bytes = options.max_file_bytes,
                      .keep_shards = options.link != Link::none},
                     problems);
  };
  const int set = set_in_out(options, in, backend);
  Plan plan = plan_as(in.earlier ? set : 0);
  ManifestOptions manifest_options = {options.model.gate_up, options.allow_nan_scales, {}, {}};
  if (in.earlier) manifest_options = in.earlier->manifest.options;
  std::vector<StateFile> state;
  if (options.format == sharded_state_format && !problems.any()) {
    state = add_state(plan, problems);
    manifest_options.format = sharded_state_format;
  }
  for (const std::string& line : problems.warnings()) warn(line);
  problems.throw_if_any();
  for (const std::string& line : in.model.notes) note(line);
  if (options.dry_run) {
    if (in.earlier) refuse_second(options.out, in.earlier->manifest, backend, plan.tp);
    return print_plan(plan, thread_count(options.threads), options.json), Json();
  }
  const bool sums = fs::exists(fs::path(options.out) / sums_name);
  if (options.if_changed && (sums || !options.sha256) &&
      is_unchanged(plan.set == set ? plan : plan_as(set), in.source, in.files, manifest_options, options.out,
                   options.threads)) {
    note(fmt::format("{}: nothing has changed", options.out));
    return Json{{"out", options.out}, {"unchanged", true}};
  }
  const SourceCache cache(in.files);
  const DeviceChoice devices = choose_device(options.device);

  OutputDir out = open_out(options, in, plan);
  Conversion conversion(plan, options, devices, in.source, out, in.earlier ? &in.earlier->manifest : nullptr);
  if (out.committed()) {
    conversion.read_journal();
  } else {
    if (in.earlier) refuse_second(options.out, in.earlier->manifest, backend, plan.tp);
    out.check_space(plan.file_bytes);
    if (in.earlier) link_earlier(plan, out, *in.earlier);
    conversion.run();
    write_state(plan, state, out, options.threads);
    manifest_options.loss = conversion.loss();
    write_companions(plan, out, conversion.checksums(), manifest_options, in.earlier);
    if (options.sha256 || (in.earlier && sums)) write_sums(out, in.earlier ? options.out : "", options.threads);
    throw_if_interrupted();
  }
  out.commit();
  report(options, in, plan, conversion);
  if (options.if_changed) cache.put(fingerprint_of(plan, conversion.checksums()));
  Json result = result_of(plan, options.out, conversion.zero_scales());
  result["seconds"] = conversion.seconds();
  return result;
}

Json convert_checkpoint(const ConvertOptions& options) {
  Problems problems;
  const Checkpoint checkpoint = open_checkpoint(options.checkpoint, problems);
  const Model model = recognise(checkpoint, options.model, problems);
  if (problems.any()) {
    for (const std::string& line : problems.warnings()) warn(line);
    problems.throw_if_any();
  }
  const auto source = read_from(checkpoint);
  return run(options, {checkpoint, model, *source, checkpoint}, problems);
}

/// From one packed form to another: the same bytes as from the source, which is not needed.
Json convert_packed(ConvertOptions options) {
  if (options.link != Link::none)
    fail(Kind::usage, "{}: is packed; --link needs a checkpoint's own shards", options.checkpoint);
  Problems problems;
  const auto packed = open_packed(options.checkpoint, problems);
  problems.throw_if_any();
  options.model.gate_up = packed->manifest.options.gate_up;
  options.allow_nan_scales = packed->manifest.options.allow_nan_scales;
  const auto source = read_from(*packed, packed->unpackable_set());
  const Checkpoint& names = packed->manifest.source;
  return run(options, {names, packed->model, *source, names}, problems);
}

bool is_packed(const std::string& dir) { return fs::exists(fs::path(dir) / manifest_name); }

/// OUT's names, which the new set refers to as the earlier ones do; CKPT's bytes.
Json add_set(ConvertOptions options) {
  Problems problems;
  const auto out = open_packed(options.out, problems);
  problems.throw_if_any();
  const ManifestOptions& made = out->manifest.options;
  if (options.format == sharded_state_format || made.format == sharded_state_format)
    fail(Kind::usage, "{}: a sharded state is of one set; --add is for outputs of the usual format", options.out);
  if (!options.model.gate_up.empty() && options.model.gate_up != made.gate_up)
    fail(Kind::usage, "{}: was made {} --gate-up {}", options.out, made.gate_up.empty() ? "without" : "with",
         made.gate_up);
  options.allow_nan_scales |= made.allow_nan_scales;
  const Checkpoint& names = out->manifest.source;
  if (is_packed(options.checkpoint)) {
    const auto packed = open_packed(options.checkpoint, problems);
    problems.throw_if_any();
    check_same_form(packed->manifest.source, *out);
    const auto source = read_from(*packed, packed->unpackable_set());
    return run(options, {names, out->model, *source, names, out.get()}, problems);
  }
  const Checkpoint checkpoint = open_checkpoint(options.checkpoint, problems);
  problems.throw_if_any();
  check_same_form(checkpoint, *out);
  const auto source = read_by_name(checkpoint);
  return run(options, {names, out->model, *source, checkpoint, out.get()}, problems);
}

}  // namespace

Json convert(const ConvertOptions& options) {
  if (options.backend != "auto")  // a usage error comes first
    find_backend(options.backend, options.engine, options.layout_version);
  if (options.add) return add_set(options);
  return is_packed(options.checkpoint) ? convert_packed(options) : convert_checkpoint(options);
}

}  // namespace mxfp4
