#include "src/plan/rewrite.h"

#include <algorithm>
#include <cstring>

#include "src/plan/pieces.h"
#include "src/plan/transfer.h"

namespace mxfp4 {

namespace {

/// One expert's matrix of t over canonical bytes that begin with that expert's pieces.
Matrix matrix_at(const Plan& plan, const PackedTensor& t, int64_t expert, const uint8_t* canonical) {
  const uint8_t* at[2] = {};
  for (const Piece& p : pieces_in(plan, t, expert, expert + 1).list) at[p.view] = canonical + p.canonical_at;
  return matrix_of<const uint8_t>(plan, t, plan.model->layers[size_t(t.layer)].experts[size_t(expert)], at);
}

/// Copies the matrix's rows without padding into contiguous memory, gate before up, and makes the matrix refer to the
/// copy.
std::vector<uint8_t> gather(Matrix& m) {
  std::vector<uint8_t> rows(size_t(m.views * m.real.n * m.real.b));
  uint8_t* to = rows.data();
  for (int v = 0; v < m.views; ++v) {
    const Rows from = m.view[v];
    m.view[v] = {to, m.real.b};
    for (int64_t n = 0; n < m.real.n; ++n, to += m.real.b)
      std::memcpy(to, from.data + n * from.stride, size_t(m.real.b));
  }
  return rows;
}

/// The packed tensor of the same layer, role and rank, and another part.
const PackedTensor& sibling(const Plan& plan, const PackedTensor& t, Part part) {
  for (const PackedTensor& s : plan.packed)
    if (s.layer == t.layer && s.role == t.role && s.rank == t.rank && s.part == part) return s;
  fail(ErrorKind::input, "{}: no {} beside it", t.name, name_of(part));
}

/// Groups of all experts' codes, on all ranks of the plan.
int64_t groups_in(const Plan& plan) {
  int64_t bytes = 0;
  for (const PackedTensor& t : plan.packed)
    if (t.part == Part::codes)
      for (const Expert& e : plan.model->layers[size_t(t.layer)].experts) {
        const uint8_t* none[2] = {};
        const Matrix m = matrix_of<const uint8_t>(plan, t, e, none);
        bytes += m.views * m.real.n * m.real.b;
      }
  return bytes / (group / 2);
}

}  // namespace

std::vector<uint8_t> load_canonical(const Pieces& pieces, const ReadPieces& read) {
  std::vector<uint8_t> source(size_t(pieces.source_bytes)), canonical(size_t(pieces.canonical_bytes));
  read(pieces, source.data());
  for (const Piece& p : pieces.list) to_canonical(*pieces.tensor, p, source.data(), canonical.data());
  return canonical;
}

Pieces scales_beside(const Pieces& pieces) {
  return pieces_in(pieces.plan, sibling(pieces.plan, *pieces.tensor, Part::scales), pieces.begin, pieces.end);
}

RewriteLoss pack_rewritten(const Pieces& pieces, const PackedTensor& t, Device& device, const uint8_t* canonical,
                           const uint8_t* scales, uint8_t* packed) {
  RewriteLoss loss;
  const Plan& plan = pieces.plan;
  const PackedTensor& scaled = sibling(plan, t, Part::scales);
  const int64_t own_bytes = pieces_in(plan, t, pieces.begin, pieces.begin + 1).canonical_bytes;
  const int64_t scale_bytes = pieces_in(plan, scaled, pieces.begin, pieces.begin + 1).canonical_bytes;
  for (int64_t e = pieces.begin; e < pieces.end; ++e, canonical += own_bytes, packed += t.slice_bytes) {
    const bool codes = t.part == Part::codes;
    Matrix own = matrix_at(plan, t.part == Part::residual ? scaled : t, e, canonical);
    std::vector<uint8_t> rows = gather(own);
    if (codes) {
      Matrix beside = matrix_at(plan, scaled, e, scales + (e - pieces.begin) * scale_bytes);
      std::vector<uint8_t> scale_rows = gather(beside);
      add(loss, plan.backend->rewrite(rows, scale_rows));
    } else if (t.part != Part::bias) {
      const RewriteLoss h = plan.backend->rewrite({}, rows);
      if (t.part == Part::residual) std::memcpy(packed, &h.residual, sizeof h.residual);
      if (plan.backend->first_scale_pads) own.pad = {.row = rows[0], .column = rows[0]};
    }
    const PackItem item{t.parameter->layout, own, packed};
    if (t.part != Part::residual) device.pack({&item, 1});
  }
  return loss;
}

RewriteLoss pack_from(const Pieces& pieces, const ReadPieces& read, Device& device, uint8_t* packed) {
  const PackedTensor& t = *pieces.tensor;
  const std::vector<uint8_t> canonical = load_canonical(pieces, read);
  if (!pieces.plan.backend->rewrite) {
    pack_experts(pieces, t, device, canonical.data(), packed);
    return {};
  }
  std::vector<uint8_t> scales;
  if (t.part == Part::codes) scales = load_canonical(scales_beside(pieces), read);
  return pack_rewritten(pieces, t, device, canonical.data(), scales.data(), packed);
}

void add(RewriteLoss& sum, const RewriteLoss& loss) {
  sum.groups += loss.groups;
  sum.groups_clamped += loss.groups_clamped;
  sum.codes_changed += loss.codes_changed;
  sum.codes_rounded += loss.codes_rounded;
  sum.minus_zeros += loss.minus_zeros;
}

std::string describe_loss(const RewriteLoss& l) {
  return fmt::format(
      "lossy: {} of {} groups raised to their expert's base, {} codes changed for it, {} of them with another value; "
      "{} "
      "minus zeros made zero",
      l.groups_clamped, l.groups, l.codes_changed, l.codes_rounded, l.minus_zeros);
}

Json to_json(const RewriteLoss& l) {
  return {{"groups", l.groups},
          {"groups_clamped", l.groups_clamped},
          {"codes_changed", l.codes_changed},
          {"codes_rounded", l.codes_rounded},
          {"minus_zeros", l.minus_zeros}};
}

std::vector<std::string> differences(const Json& loss, const RewriteLoss& made) {
  std::vector<std::string> lines;
  const Json expected = to_json(made);
  for (const auto& [key, count] : expected.items())
    if (const Json is = loss.value(key, Json()); is != count)
      lines.push_back(fmt::format(": loss: {} is {}, {} expected from the source", key, is.dump(), count.dump()));
  return lines;
}

std::string why_not_loss_of(const Plan& plan, const Json& loss) {
  const Json form = to_json(RewriteLoss());
  const bool has_form = loss.is_object() && loss.size() == form.size() &&
                        std::all_of(form.items().begin(), form.items().end(), [&](const auto& item) {
                          return loss.contains(item.key()) && loss[item.key()].is_number_unsigned();
                        });
  if (!has_form) return "not the five counts of a lossy backend";
  const auto count = [&](const char* key) { return loss[key].template get<uint64_t>(); };
  const uint64_t groups = uint64_t(groups_in(plan)), clamped = count("groups_clamped");
  if (count("groups") != groups) return fmt::format("{} groups, the tensors have {}", count("groups"), groups);
  if (clamped > groups) return fmt::format("{} groups_clamped of {} groups", clamped, groups);
  if (count("codes_changed") > clamped * group)
    return fmt::format("{} codes_changed in {} groups_clamped of {} codes", count("codes_changed"), clamped, group);
  if (count("codes_rounded") > count("codes_changed"))
    return fmt::format("{} codes_rounded, of {} codes_changed", count("codes_rounded"), count("codes_changed"));
  if (count("minus_zeros") > groups * group - count("codes_changed"))
    return fmt::format("{} minus_zeros beside {} codes_changed, of {} codes", count("minus_zeros"),
                       count("codes_changed"), groups * group);
  return {};
}

}  // namespace mxfp4
