#include "src/packed/rebuilt.h"

#include <algorithm>
#include <set>

#include "src/base/json_difference.h"
#include "src/packed/companions.h"
#include "src/packed/packed_checkpoint.h"
#include "src/packed/source_headers.h"
#include "src/packed/tables.h"
#include "src/plan/rewrite.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_text_bytes = int64_t(4) << 30;

/// Whether convert kept shards without experts whole. Otherwise all copied tensors are in files named rest-*.
bool keeps_shards(const Manifest& m) {
  for (const auto& [name, file] : m.copied)
    if (!file.starts_with("rest-")) return true;
  return false;
}

TensorSums sums_in(const Manifest& m, const ManifestSet& set, const Plan& plan) {
  TensorSums sums;
  for (const Tensor& t : plan.checkpoint->tensors) sums.source.push_back(m.checksum_of(t.name));
  sums.float_zeros = m.float_zeros;
  for (const PackedTensor& t : plan.packed) sums.packed.push_back(set.checksums.at({t.rank, t.name}));
  return sums;
}

class Rebuilding {
  struct Set {
    Plan plan;
    TensorSums sums;
    ManifestOptions options;
  };

 public:
  Rebuilding(const PackedCheckpoint& p, const Checkpoint& source, Problems& problems)
      : p_(p), m_(p.manifest), source_(source), problems_(problems) {
    model_ = recognise(source_, m_.options.model, problems);
  }

  void run() {
    for (size_t i = 0; i < m_.sets.size() && !problems_.any(); ++i) add_set(i);
    if (problems_.any()) return;
    for (const auto& [name, text] : texts_) compare_text(name, text);
    if (large_.any()) problems_.add(Error(ErrorKind::input, large_.errors()));
    compare_manifest();
  }

 private:
  Plan plan_of(size_t i) {
    const ManifestSet& set = m_.sets[i];
    const Backend& backend = backend_of(set, model_);
    Plan plan = make_plan(source_, model_, backend,
                          {.tp_size = set.tp_size, .set = int(i), .keep_shards = keeps_shards(m_)}, problems_);
    plan.engine_version = set.engine_version;
    if (!set.engine_version.empty() && !backend.releases.contains(set.engine_version))
      problems_.error(manifest_name, "{}: engine_version: {} {} does not load layout version {}", describe(set),
                      set.engine, set.engine_version, set.layout_version);
    return plan;
  }

  void add_set(size_t i) {
    Set& set = sets_.emplace_back(Set{plan_of(i), {}, m_.options});
    if (problems_.any() || !has_all(set.plan, m_.sets[i])) return;
    set.sums = sums_in(m_, m_.sets[i], set.plan);
    set.options.loss = m_.sets[i].loss;
    if (set.plan.backend->rewrite)
      if (const std::string why = why_not_loss_of(set.plan, set.options.loss); !why.empty())
        return problems_.error(manifest_name, "{}: loss: {}", describe(m_.sets[i]), why);
    const auto put = [&](const std::string& name, const TextSource& text) {
      if (is_large(name)) return compare_large(name, text);
      const bool is_compared = name == config_name || name == index_name || name.starts_with("packed/");
      std::string* const whole = is_compared ? &texts_[name] : nullptr;
      if (whole) whole->clear();
      text([&](std::string_view part) {  // a companion's text only passes, for its checksum
        if (whole) *whole += part;
      });
    };
    earlier_.files = make_texts(set.plan, set.sums, i ? &earlier_ : nullptr, put);
    earlier_.sets.push_back(m_.sets[i]);
    earlier_.sets.back().facts = facts_of(set.plan, set.options.loss);
  }

  /// Whether the file is too large to keep in memory.
  static bool is_large(const std::string& name) {
    return name == source_headers_name || name == source_index_name || name.ends_with(".jsonl");
  }

  void compare_large(const std::string& name, const TextSource& expected) {
    if (is_text_in_out(name, expected)) return;
    if (!name.ends_with(".jsonl")) return large_.error(name, "differs from the text for this checkpoint and backend");
    std::string text;
    expected([&](std::string_view part) { text += part; });
    const int64_t before = large_.count();
    report_differences(name, lines_of(text, name), lines_of(text_in_out(name), name), large_);
    if (large_.count() == before) large_.error(name, "the same meaning, but not the text");
  }

  static Json lines_of(const std::string& text, const std::string& name) {
    Json lines = Json::array();
    for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      lines.push_back(parse_json(std::string_view(text).substr(begin, end - begin), name));
    }
    return lines;
  }

  std::string manifest_text() const {
    const Set& last = sets_.back();
    std::vector<ManifestSet> before = earlier_.sets;
    before.pop_back();
    return make_manifest(last.plan, last.sums, last.options, earlier_.files, before);
  }

  bool has_all(const Plan& plan, const ManifestSet& set) {
    for (const PackedTensor& t : plan.packed)
      if (!set.checksums.count({t.rank, t.name}))
        problems_.error(set.table, "{}: not listed for rank {}", printable(t.name), t.rank);
    for (const Tensor& t : source_.tensors)
      if (!m_.source.find(t.name)) problems_.error(source_table_name, "{}: not listed", printable(t.name));
    return !problems_.any();
  }

  std::string text_in_out(const std::string& name) {
    const std::string path = p_.held.path(name, problems_);
    return path.empty() ? "" : read_text(path, max_text_bytes, name);
  }

  /// Compares block by block, without the whole file in memory.
  bool is_text_in_out(const std::string& name, const TextSource& expected) {
    const std::string path = p_.held.path(name, problems_);
    if (path.empty()) return false;
    const Fd file = open_read(path, name);
    const int64_t bytes = file.stat().st_size;
    int64_t at = 0;
    std::string block;
    bool same = true;
    expected([&](std::string_view text) {
      const auto count = int64_t(text.size());
      same = same && at + count <= bytes;
      if (!same) return;
      block.resize(text.size());
      file.read(block.data(), count, at);
      same = block == text;
      at += count;
    });
    return same && at == bytes;
  }

  void compare_text(const std::string& name, const std::string& expected) {
    const std::string is = text_in_out(name);
    if (is == expected || problems_.any()) return;
    if (!name.ends_with(".json")) return problems_.error(name, "differs from the text for this checkpoint and backend");
    report_differences(name, parse_json(expected, name), parse_json(is, name), problems_);
  }

  void compare_manifest() {
    const std::string text = manifest_text(), is = text_in_out(manifest_name);
    if (text == is) return;
    const bool same_version = m_.options.tool_version == MXFP4_VERSION;
    if (!is_version(m_.options.tool_version))
      problems_.error(manifest_name, "tool.version: '{}' is not a version", m_.options.tool_version);
    Json expected = parse_json(text, manifest_name);
    expected["xxh3_128"] = m_.own_checksum;  // checked when the manifest was read
    const Json found = parse_json(is, manifest_name);
    const int64_t before = problems_.count();
    report_differences(manifest_name, expected, found, problems_);
    if (same_version && problems_.count() == before)
      problems_.error(manifest_name, "the same meaning, but not the text that mxfp4-pack {} writes", MXFP4_VERSION);
  }

  const PackedCheckpoint& p_;
  const Manifest& m_;
  const Checkpoint& source_;
  Problems& problems_;
  Model model_;
  std::vector<Set> sets_;
  EarlierOutput earlier_;  // the output before the next set is added
  Problems large_;         // problems of files that are not kept in texts_
  std::map<std::string, std::string> texts_;
};

}  // namespace

void compare_with_rebuilt(const PackedCheckpoint& packed, const Checkpoint& source, Problems& problems) {
  Rebuilding(packed, source, problems).run();
}

}  // namespace mxfp4
