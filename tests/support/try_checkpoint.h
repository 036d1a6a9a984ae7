// Runs the program on a made checkpoint, and collects its messages and output.
#pragma once

#include <catch2/catch.hpp>

#include "tests/support/make_checkpoint.h"
#include "tests/support/program.h"

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

inline ConvertOptions marlin(const TempDir& dir) { return conversion(dir / "ckpt", dir / "out", "vllm"); }

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

/// Converts dir/ckpt, verifies the output and checks that unpack restores every tensor. Returns the warnings.
inline Lines warned_of(const TempDir& dir, const ConvertOptions& options) {
  Problems problems;
  const Checkpoint ck = open_checkpoint(options.checkpoint, problems);
  recognise(ck, options.model, problems);
  problems.throw_if_any();
  convert(options);
  CHECK(is_right(options.out, options.checkpoint));
  run_unpack(options.out, dir / "again");
  CHECK((tensors_of(dir / "again") == tensors_of(options.checkpoint)));
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
