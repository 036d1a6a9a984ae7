// Captures standard output for a caller in the same process.
#pragma once

#include <string>

namespace mxfp4 {

/// While one lives, what its thread appends to stdout by write_output() is kept instead.
class CapturedOutput {
 public:
  CapturedOutput();
  ~CapturedOutput();
  CapturedOutput(const CapturedOutput&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string* outer_;
};

}  // namespace mxfp4
