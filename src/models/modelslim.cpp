// Ascend ModelSlim: quant_model_description.json has a line for every tensor, "W4A8_MXFP" or "W4A4_MXFP4" for MXFP4.
// Its layout is not known here. So such checkpoints are refused by name, instead of being read as a similar format.
// Source: msmodelslim AscendV1Saver (names of files and types).
#include <algorithm>

#include "src/models/families.h"

namespace mxfp4 {

namespace {

constexpr const char* description = "quant_model_description.json";

/// The first MXFP4 type of a tensor; empty if there is none.
std::string type_in(const Json& lines) {
  for (const auto& [tensor, type] : lines.items())
    if (type.is_string())
      for (const char* known : {"W4A8_MXFP", "W4A4_MXFP4"})
        if (type.get_ref<const std::string&>().starts_with(known)) return type.get<std::string>();
  return {};
}

bool matches_modelslim(const Checkpoint& ck) {
  const auto lines = read_companion(ck, description);
  return lines && lines->is_object() && !type_in(*lines).empty();
}

void read_modelslim(const Checkpoint& ck, const ModelOptions&, Model&, Problems& problems) {
  problems.error(description,
                 "{}: Ascend ModelSlim's form of MXFP4, which is not read; take the checkpoint that it was made from",
                 type_in(*read_companion(ck, description)));
}

}  // namespace

const Family modelslim = {"modelslim", matches_modelslim, read_modelslim};

}  // namespace mxfp4
