// diff: where two outputs differ, or an output and a dump of an engine's live state, and why they may.
#pragma once

#include <string>

namespace mxfp4 {

struct DiffOptions {
  std::string a;  // an output of convert
  std::string b;  // another, or safetensors: a file, or a directory of them
  int rank = -1;  // tensor-parallel rank to compare; -1: all, of a dump: 0
  bool json = false;
};

/// Prints what differs; true where nothing does.
bool diff(const DiffOptions& options);

}  // namespace mxfp4
