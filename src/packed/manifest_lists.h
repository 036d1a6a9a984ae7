// A manifest's text taken apart, so that neither it nor a document of all its tensors is in memory.
#pragma once

#include <vector>

#include "src/base/json.h"
#include "src/base/long_text.h"

namespace mxfp4 {

struct SplitManifest {
  Json rest;                                    // the document, in which these are empty:
  std::vector<TextRange> copied;                // the JSON of each entry
  std::vector<std::vector<TextRange>> tensors;  // of each set
  TextRange index = {};                         // the JSON of the source's index
  TextRange sets = {};                          // what stands between the brackets of "sets", which is not empty
};

/// mxfp4-pack writes each entry, and the index, on a line of its own. For any other text `rest` is the whole document
/// and all ranges are empty. Throws Error{input} where it is no JSON; an entry is not parsed.
SplitManifest split_manifest(const LongText& text);

}  // namespace mxfp4
