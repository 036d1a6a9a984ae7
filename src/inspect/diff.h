// diff: the differences between two outputs, or between an output and a dump of an engine's weights, with likely
// causes.
#pragma once

#include <string>

namespace mxfp4 {

struct DiffOptions {
  std::string a;  // an output of convert
  std::string b;  // another, or safetensors: a file, or a directory of them
  int rank = -1;  // tensor-parallel rank to compare; -1: all, for a dump 0
  bool json = false;
};

/// Prints the differences. Returns whether there are none.
bool diff(const DiffOptions& options);

}  // namespace mxfp4
