#include "src/library/guard.h"

#include <cstdlib>
#include <new>

#include "src/base/capture.h"
#include "src/base/log.h"

namespace mxfp4 {

namespace {

thread_local std::string error_text;
thread_local const char* error_now = "";

/// Works if memory is exhausted as well.
mxfp4_pack_status failed(mxfp4_pack_status status, const char* text) noexcept {
  try {
    error_text = text;
    error_now = error_text.c_str();
  } catch (const std::bad_alloc&) {
    error_now = "out of memory";
  }
  return status;
}

mxfp4_pack_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return MXFP4_PACK_USAGE;
    case ErrorKind::input:
      return MXFP4_PACK_INPUT;
    case ErrorKind::io:
      return MXFP4_PACK_IO;
    case ErrorKind::device:
      return MXFP4_PACK_DEVICE;
    case ErrorKind::interrupted:
      return MXFP4_PACK_INTERRUPTED;
  }
  return MXFP4_PACK_IO;
}

/// The status for the exception that is being handled.
mxfp4_pack_status failed() noexcept {
  try {
    const Error e = caught();
    return failed(status_of(e.kind), fmt::format("{}", fmt::join(e.lines, "\n")).c_str());
  } catch (const std::bad_alloc&) {
    return failed(MXFP4_PACK_IO, "out of memory");
  }
}

char* copy_of(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty()) return nullptr;
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace

mxfp4_pack_status guarded(const std::function<bool()>& call) noexcept {
  error_now = "";
  try {
    set_verbosity(Verbosity::quiet);
    return call() ? MXFP4_PACK_OK : MXFP4_PACK_WRONG;
  } catch (...) {
    return failed();
  }
}

mxfp4_pack_status captured(char** json, const std::function<bool()>& call) noexcept {
  if (json) *json = nullptr;
  return guarded([&] {
    CapturedOutput output;
    const bool yes = call();
    if (json) *json = copy_of(output.text());
    return yes;
  });
}

}  // namespace mxfp4

const char* mxfp4_pack_version() { return MXFP4_VERSION; }
const char* mxfp4_pack_error() { return mxfp4::error_now; }
void mxfp4_pack_free(char* memory) { std::free(memory); }
