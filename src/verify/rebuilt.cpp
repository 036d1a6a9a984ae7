#include "src/verify/rebuilt.h"

#include <filesystem>
#include <set>

#include "src/io/sha256.h"
#include "src/packed/add_set.h"
#include "src/packed/companions.h"
#include "src/packed/sharded_state.h"
#include "src/verify/json_difference.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_text_bytes = int64_t(4) << 30;

/// Whether shards without experts were kept whole: then copied tensors are in files that are not named rest-*.
bool keeps_shards(const Manifest& m) {
  for (const auto& [name, file] : m.copied)
    if (!file.starts_with("rest-")) return true;
  return false;
}

/// The manifest's description of the source, with its whole shards where OUT has them.
Checkpoint with_kept_shards(const PackedCheckpoint& p, const Checkpoint& source) {
  Checkpoint ck = source;
  Problems packed;  // shards with experts are not in OUT
  for (Shard& s : ck.shards)
    if (s.path.empty()) s.path = p.held.path(s.name, packed);
  return ck;
}

TensorSums sums_in(const Manifest& m, const ManifestSet& set, const Plan& plan) {
  TensorSums sums;
  sums.source = m.checksums;
  for (const auto& [name, is_zero] : m.float_zeros) sums.float_zeros.insert(name);
  for (const PackedTensor& t : plan.packed) sums.packed.push_back(set.checksums.at({t.rank, t.name}));
  return sums;
}

class Rebuilding {
 public:
  Rebuilding(const PackedCheckpoint& p, const Checkpoint& source, Problems& problems)
      : p_(p), m_(p.manifest), source_(with_kept_shards(p, source)), problems_(problems) {
    model_ = recognise(source_, {m_.options.gate_up}, problems);
  }

  void run() {
    for (size_t i = 0; i < m_.sets.size() && !problems_.any(); ++i) add_set(i);
    if (problems_.any()) return;
    for (const auto& [name, text] : texts_) compare_text(name, text);
    compare_manifest();
  }

 private:
  Plan plan_of(size_t i) {
    const ManifestSet& set = m_.sets[i];
    const Backend& backend = find_backend(set.backend, set.engine, set.layout_version, &model_);
    Plan plan =
        make_plan(source_, model_, backend, {.tp = set.tp, .set = int(i), .keep_shards = keeps_shards(m_)}, problems_);
    if (m_.options.format == sharded_state_format && !problems_.any()) add_state(plan, problems_);
    return plan;
  }

  void add_set(size_t i) {
    const Plan plan = plan_of(i);
    if (problems_.any() || !has_all(plan, m_.sets[i])) return;
    ManifestOptions options = m_.options;
    options.loss = m_.sets[i].loss;
    const auto put = [&](const std::string& name, const std::string& text) {
      if (name == config_name || name == index_name || name.starts_with("packed/")) texts_[name] = text;
    };
    OutputTexts texts = make_texts(plan, sums_in(m_, m_.sets[i], plan), options, i ? &earlier_ : nullptr, put);
    if (i == 0)
      for (const CopiedTensor& t : plan.copied) earlier_.text.copied[t.source->name] = plan.files[size_t(t.file)].name;
    earlier_.files = std::move(texts.files);
    earlier_.sets.push_back(m_.sets[i]);
    manifest_ = std::move(texts.manifest);
    earlier_.text.text = sets_text_of(manifest_);
  }

  bool has_all(const Plan& plan, const ManifestSet& set) {
    for (const PackedTensor& t : plan.packed)
      if (!set.checksums.count({t.rank, t.name}))
        problems_.error(manifest_name, "{}: not listed for rank {}", printable(t.name), t.rank);
    for (const Tensor& t : source_.tensors)
      if (!m_.checksums.count(t.name)) problems_.error(manifest_name, "{}: not listed", printable(t.name));
    return !problems_.any();
  }

  std::string text_in_out(const std::string& name) {
    const std::string path = p_.held.path(name, problems_);
    return path.empty() ? "" : read_text(path, max_text_bytes, name);
  }

  void compare_text(const std::string& name, const std::string& expected) {
    const std::string is = text_in_out(name);
    if (is == expected || problems_.any()) return;
    if (!name.ends_with(".json")) return problems_.error(name, "not what this checkpoint and backend give");
    report_differences(name, parse_json(expected, name), parse_json(is, name), {}, problems_);
  }

  void compare_manifest() {
    const std::string is = text_in_out(manifest_name);
    if (is == manifest_) return;
    const bool same_version = m_.options.tool_version == MXFP4_VERSION;
    const std::set<std::string> newer = {"fits", "requires", "version", "engine_version", "learned_layouts", "parts"};
    const std::set<std::string> first =
        m_.options.version == 1 ? std::set<std::string>{"fits"} : std::set<std::string>();
    const std::set<std::string>& ignored = same_version ? first : newer;  // releases were read since version 1
    Json expected = parse_json(manifest_, manifest_name), found = parse_json(is, manifest_name);
    expected.erase("xxh3_128");
    found.erase("xxh3_128");
    const int64_t before = problems_.count();
    report_differences(manifest_name, expected, found, ignored, problems_);
    Problems any;
    report_differences(manifest_name, expected, found, {}, any);
    if (same_version && problems_.count() == before && !any.any())
      problems_.error(manifest_name, "the same meaning, but not the text that mxfp4-pack {} writes", MXFP4_VERSION);
  }

  const PackedCheckpoint& p_;
  const Manifest& m_;
  const Checkpoint source_;
  Problems& problems_;
  Model model_;
  EarlierOutput earlier_;
  std::string manifest_;
  std::map<std::string, std::string> texts_;
};

/// The directory that was opened, wherever it is by now.
std::vector<std::string> files_of(const HeldFiles& held) {
  try {
    return files_below(held.folder());
  } catch (const std::filesystem::filesystem_error&) {
    held.throw_if_replaced(manifest_name);
    throw;
  }
}

/// Version 1 does not say whether SHA256SUMS belongs to OUT.
bool may_be_there(const ManifestOptions& made, const std::string& name) {
  return (name == sums_name && (made.sha256sums || made.version == 1)) || name == ".gitattributes" ||
         name.starts_with(".git/") || name.starts_with(".cache/");
}

}  // namespace

void compare_with_rebuilt(const PackedCheckpoint& packed, const Checkpoint& source, Problems& problems) {
  Rebuilding(packed, source, problems).run();
}

void check_nothing_else(const PackedCheckpoint& packed, Problems& problems) {
  std::set<std::string> listed = {manifest_name};
  for (const ListedFile& f : packed.manifest.files) listed.insert(f.name);
  for (const std::string& name : files_of(packed.held))
    if (!listed.count(name) && !may_be_there(packed.manifest.options, name))
      problems.error(name, "not listed in {}", manifest_name);
}

}  // namespace mxfp4
