// convert: a published checkpoint to the bytes that an engine's kernel reads.
#pragma once

#include <optional>
#include <string>

#include "src/device/device_choice.h"
#include "src/io/direct_file.h"
#include "src/io/link.h"
#include "src/io/output.h"
#include "src/io/page_cache.h"
#include "src/io/parts.h"
#include "src/models/model.h"

namespace mxfp4 {

struct Place;
struct Plan;

struct ConvertOptions {
  std::string checkpoint, out;
  std::string backend, engine, layout_version;
  std::string layout;          // a layout file, in place of backend and engine
  std::string layout_file;     // its JSON, where that was read before
  std::string engine_version;  // a release; empty: the newest known
  std::string gpu, phase;      // for backend "auto"; no gpu: the one that is here
  int64_t gpu_bytes = -1;      // its memory; 0: no limit, -1: by gpu
  bool lossy = false;          // "auto" may change values
  ModelOptions model;
  int tp_size = 1;
  int rank = -1;                  // of tp_size; -1: all
  std::string format = "packed";  // or "sharded-state"
  bool allow_nan_scales = false;
  bool allow_incomplete = false;  // converts also what lacks tensors, or holds what nobody means
  bool is_incomplete = false;     // found so by the headers
  bool skips_published = false;   // as skips_published() found
  std::string published;          // a list of hashes that the checkpoint's files must have; empty: Hugging Face's own
  bool no_published = false;      // none are compared
  Links links = Links::offer;     // of the checkpoint
  bool no_loader = false;         // writes also what no loader reads
  int threads = 0;
  DeviceOptions device;
  Sync sync = Sync::yes;                        // of the files with tensors
  PageCache page_cache = PageCache::automatic;  // whether they stay there
  std::optional<Link> link;                     // shards that hold no expert are kept whole, in this way
  std::optional<PartNumber> part;               // only this part is written
  bool merge = false;                           // all parts are there, or nothing is done
  bool verify = false;                          // merge: reads their bytes again
  bool dry_run = false, force = false, add = false, sha256 = false, json = false;
};

/// Takes "vllm==0.33.0" apart, and calls the backend by its own name.
void settle_names(ConvertOptions& options);

/// Does what is left to do: makes OUT, continues an interrupted run of the same conversion, or finds OUT to be what it
/// would write. Returns what --json prints; `unchanged` in it is true if there was nothing to do. Null after a dry run,
/// whose plan is printed here.
Json convert(const ConvertOptions& options);
/// The same for merge(), which has looked OUT's place up and claimed its parts.
Json convert(const ConvertOptions& options, const Place& place);

}  // namespace mxfp4
