// Runs the program on a made checkpoint, and collects its messages and output.
#pragma once

#include <catch2/catch.hpp>

#include "src/base/log.h"
#include "src/convert/convert.h"
#include "src/convert/unpack.h"
#include "src/verify/verify.h"
#include "tests/support/make_checkpoint.h"

namespace mxfp4 {

using Lines = std::vector<std::string>;

/// Replaces the checkpoint's directory by CKPT and the output's by OUT.
inline std::string without_dir(std::string line, const TempDir& dir) {
  for (const auto& [name, instead] : {std::pair("ckpt", "CKPT"), {"out", "OUT"}})
    for (size_t at; (at = line.find(dir / name)) != line.npos;) line.replace(at, (dir / name).size(), instead);
  return line;
}

/// The lines of the error that `run` must throw.
template <class Run>
Lines refusal(const TempDir& dir, Run run, ErrorKind kind = ErrorKind::input) {
  Lines lines = {"no error"};
  try {
    run();
  } catch (const Error& e) {
    CHECK(name_of(e.kind) == std::string(name_of(kind)));
    lines = e.lines;
  }
  for (std::string& line : lines) line = without_dir(line, dir);
  return lines;
}

inline ConvertOptions marlin(const TempDir& dir) {
  set_verbosity(Verbosity::quiet);
  ConvertOptions o;
  o.no_loader = true;
  o.checkpoint = dir / "ckpt";
  o.out = dir / "out";
  o.backend = "marlin";
  o.engine = "vllm";
  o.threads = 1;
  return o;
}

/// The lines of the error if convert refuses dir/ckpt. No file may be written or changed.
inline Lines said_to(const TempDir& dir, const ConvertOptions& options) {
  const auto entries = [&] { return std::distance(std::filesystem::recursive_directory_iterator(dir / ""), {}); };
  const auto before = contents_of(dir / "");
  const auto count = entries();
  const Lines lines = refusal(dir, [&] { convert(options); });
  CHECK((contents_of(dir / "") == before));
  CHECK(entries() == count);
  return lines;
}
inline Lines said_to(const MadeCheckpoint& c) {
  const TempDir dir;
  c.write(dir / "ckpt");
  return said_to(dir, marlin(dir));
}

/// Every tensor of a directory's safetensors files: name -> dtype, shape and bytes.
inline std::map<std::string, std::string> tensors_in(const std::string& dir) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string text = read_text(entry.path().string(), 1 << 26);
    Problems problems;
    for (const Tensor& t : read_header(entry.path().string(), "file", problems).tensors)
      out[t.name] = describe(t.dtype, t.shape) + text.substr(size_t(t.offset), size_t(t.bytes));
    problems.throw_if_any();
  }
  return out;
}

/// Converts dir/ckpt, verifies the output and checks that unpack restores every tensor. Returns the warnings.
inline Lines warned_of(const TempDir& dir, const ConvertOptions& options) {
  Problems problems;
  const Checkpoint ck = open_checkpoint(options.checkpoint, problems);
  recognise(ck, options.model, problems);
  problems.throw_if_any();
  convert(options);
  VerifyOptions v;
  v.out = options.out;
  v.source = options.checkpoint;
  v.level = Level::bytes;
  v.threads = 1;
  CHECK(verify(v));
  UnpackOptions u;
  u.out = options.out;
  u.dest = dir / "again";
  u.threads = 1;
  unpack(u);
  CHECK((tensors_in(dir / "again") == tensors_in(options.checkpoint)));
  Lines lines = problems.warnings();
  for (std::string& line : lines) line = without_dir(line, dir);
  return lines;
}
inline Lines warned_of(const MadeCheckpoint& c) {
  const TempDir dir;
  c.write(dir / "ckpt");
  return warned_of(dir, marlin(dir));
}

}  // namespace mxfp4
