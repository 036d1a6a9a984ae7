// convert: turns a published checkpoint into the bytes that an engine's kernel reads.
#pragma once

#include <optional>
#include <string>

#include "src/base/json.h"
#include "src/convert/recipe.h"
#include "src/device/device_choice.h"
#include "src/io/direct_file.h"
#include "src/io/link.h"
#include "src/io/output.h"
#include "src/io/page_cache.h"
#include "src/io/parts.h"

namespace mxfp4 {

struct Place;
struct Plan;

/// What to write (Recipe), from where, and how to run.
struct ConvertOptions : Recipe {
  std::string checkpoint, out;
  std::string gpu;               // empty, for backend "auto": this machine's
  int64_t gpu_bytes = -1;        // the GPU's memory; 0: no limit, -1: that of `gpu`
  bool is_incomplete = false;    // the headers show missing tensors
  bool skips_published = false;  // result of skips_published()
  std::string published;         // a list of the files' hashes; empty: those that Hugging Face's tools left
  bool no_published = false;     // compares no hashes
  Links links = Links::offer;    // of the checkpoint
  bool no_loader = false;        // also writes outputs that no loader reads
  int threads = 0;
  DeviceOptions device;
  PageCache page_cache = PageCache::automatic;  // whether written files stay in the page cache
  std::optional<PartNumber> part;               // writes this part only
  bool merge = false;                           // merges all parts; if one is missing, does nothing
  bool verify = false;                          // merge: reads the parts' bytes again
  bool dry_run = false, force = false, add = false, json = false;
};

/// The recipe with the plan's choices: the names of backend, engine and layout version, or the layout file's text.
Recipe recipe_of(const ConvertOptions& options, const Plan& plan);
/// {name: value} for each member.
Json to_json(const Recipe& recipe);
Json to_json(const ModelOptions& options);

/// Splits "vllm==0.33.0", and replaces an alias by the backend's own name.
void settle_names(ConvertOptions& options);

/// Makes OUT, continues an interrupted run of the same conversion, or finds that OUT is already up to date. Returns
/// what --json prints; `unchanged` is true if there was nothing to do. A dry run prints the plan and returns null.
Json convert(const ConvertOptions& options);
/// The same for merge(), which has looked up OUT's place and claimed its parts.
Json convert(const ConvertOptions& options, const Place& place);

}  // namespace mxfp4
