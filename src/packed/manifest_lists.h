// A manifest's text taken apart, so that no document of all its tensors is in memory.
#pragma once

#include <string_view>
#include <vector>

#include "src/base/json.h"

namespace mxfp4 {

struct SplitManifest {
  Json rest;                                           // the document, in which these lists are empty:
  std::vector<std::string_view> copied;                // the JSON of each entry
  std::vector<std::vector<std::string_view>> tensors;  // of each set
};

/// The entries lie in `text`, one on a line as mxfp4-pack writes them. Of any other text the document is whole and no
/// entry stands beside it. Throws Error{input} where it is no JSON; an entry is not parsed.
SplitManifest split_manifest(std::string_view text);

}  // namespace mxfp4
