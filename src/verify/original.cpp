#include "src/verify/original.h"

#include <set>

#include "src/checkpoint/companion.h"

namespace mxfp4 {

Original::Original(const std::string& dir, Links links) {
  if (dir.empty()) return;
  Problems problems;
  checkpoint = std::make_unique<Checkpoint>(open_checkpoint(dir, problems, links));
  problems.throw_if_any();
  reader = std::make_unique<ShardReader>(*checkpoint);
}

void Original::check_form(const Checkpoint& made_from, const std::string& out) const {
  constexpr int64_t listed = 3;  // if there are more, only their number is reported
  Problems problems;
  std::string first;
  for (const Tensor& t : made_from.tensors) {
    const Tensor* s = checkpoint->find(t.name);
    if (s && s->dtype == t.dtype && s->shape == t.shape) continue;
    if (first.empty()) first = t.name;
    if (!s)
      problems.error(where(checkpoint->dir, t.name), "missing in the source");
    else
      problems.error(checkpoint->where(*s), "{}, the output was made from {}", describe(s->dtype, s->shape),
                     describe(t.dtype, t.shape));
  }
  if (problems.count() <= listed) return problems.throw_if_any();
  const size_t tensors = made_from.tensors.size();
  fail(ErrorKind::input,
       "{}: not the {} that {} was made from: {} of its {} tensors are missing here or have another shape, {} first",
       checkpoint->dir, 2 * size_t(problems.count()) > tensors ? "model" : "checkpoint", out, problems.count(), tensors,
       first);
}

void Original::compare_rest(const Checkpoint& made_from, Problems& problems) const {
  if (checkpoint->config_text != made_from.config_text)
    problems.error(where(checkpoint->dir, config_name), "differs from the source of the output");
  if (checkpoint->index != made_from.index)
    problems.error(where(checkpoint->dir, index_name), "differs from the source of the output");
  const std::set<std::string> theirs(checkpoint->companions.begin(), checkpoint->companions.end());
  const std::set<std::string> ours(made_from.companions.begin(), made_from.companions.end());
  for (const std::string& name : theirs)
    if (!ours.count(name)) problems.error(where(checkpoint->dir, name), "in the source, but not in the output");
  for (const std::string& name : ours) {
    if (!theirs.count(name)) {
      problems.error(where(checkpoint->dir, name), "in the output, but not in the source");
      continue;
    }
    if (companion_checksum(*checkpoint, name) != made_from.companion_checksums.at(name))
      problems.error(where(checkpoint->dir, name), "differs from the source of the output");
  }
  for (const Tensor& t : checkpoint->tensors)
    if (!made_from.find(t.name)) problems.error(checkpoint->where(t), "in the source, but not in the output");
}

}  // namespace mxfp4
