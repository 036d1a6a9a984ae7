// Captures standard output for a caller in the same process.
#pragma once

#include <string>

namespace mxfp4 {

/// While a Capture lives, it keeps the text that its thread writes by write_output(), which does not go to stdout.
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
