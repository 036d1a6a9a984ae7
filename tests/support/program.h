// The subcommands with settings for tests: quiet, two threads.
#pragma once

#include "src/base/log.h"
#include "src/convert/convert.h"
#include "src/convert/unpack.h"
#include "src/synth/synth.h"
#include "src/verify/verify.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "tests/support/testdata.h"

namespace mxfp4 {

struct Sizes {
  std::optional<int64_t> layers = {}, experts = {}, hidden = {}, intermediate = {};
};

/// A checkpoint of a published structure, small but for these sizes.
inline void write_synth(std::string_view model, const std::string& dest, const Sizes& s) {
  set_verbosity(Verbosity::quiet);
  SynthOptions o;
  o.model = model, o.dest = dest, o.seed = 3, o.threads = 2;
  o.sizes = {s.layers, s.experts, s.hidden, s.intermediate, {}, true};
  synth(o);
}

inline ConvertOptions conversion(const std::string& from, const std::string& to, const std::string& engine,
                                 const std::string& backend = "marlin") {
  set_verbosity(Verbosity::quiet);
  ConvertOptions o;
  o.checkpoint = from;
  o.out = to;
  o.backend = backend;
  o.engine = engine;
  if (engine == "vllm" && backend == "marlin") o.layout_version = "1";  // whatever the newest release has
  o.threads = 2;
  o.no_loader = true;
  return o;
}

inline bool is_right(const std::string& out, const std::string& source = {}, Level level = Level::bytes) {
  set_verbosity(Verbosity::quiet);
  VerifyOptions o;
  o.out = out;
  o.source = source;
  o.level = level;
  o.threads = 2;
  return verify(o);
}

inline void run_unpack(const std::string& out, const std::string& dest) {
  set_verbosity(Verbosity::quiet);
  UnpackOptions o;
  o.out = out;
  o.dest = dest;
  o.threads = 2;
  unpack(o);
}

/// Whether unpack makes the checkpoint dir/in of the output dir/out.
inline bool comes_back(const TempDir& dir) {
  run_unpack(dir / "out", dir / "again");
  return contents_of(dir / "again") == contents_of(dir / "in");
}

/// Every tensor of a safetensors file: name -> dtype, shape and bytes.
inline std::map<std::string, std::string> tensors_of_file(const std::string& path) {
  const std::string text = read_text(path, int64_t(1) << 30);
  Problems problems;
  std::map<std::string, std::string> out;
  for (const Tensor& t : read_header(path, path, problems).tensors)
    out[t.name] = describe(t.dtype, t.shape) + text.substr(size_t(t.offset), size_t(t.bytes));
  problems.throw_if_any();
  return out;
}

/// The tensors of all files below a directory, except canaries.
inline std::map<std::string, std::string> tensors_of(const std::string& dir) {
  std::map<std::string, std::string> out;
  for (const auto& [name, text] : contents_of(dir))
    if (name.ends_with(".safetensors") && name.find("canary") == name.npos)
      out.merge(tensors_of_file(dir + "/" + name));
  return out;
}

inline const std::string tiny = testdata() + "/tiny/";
inline const std::string tiny_gpt_oss = tiny + "gpt-oss";

}  // namespace mxfp4
