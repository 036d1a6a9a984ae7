// Calls C++ code from C functions, and converts exceptions.
#pragma once

#include <cstring>
#include <functional>
#include <string>

#include "src/base/error.h"
#include "src/library/mxfp4_pack.h"

namespace mxfp4 {

/// Runs `call`, which returns whether the answer is yes. Converts an exception into a status and lines for
/// mxfp4_pack_error().
mxfp4_pack_status guarded(const std::function<bool()>& call) noexcept;

/// Like guarded(). The standard output of `call`, without its newline, is stored in *json, which the caller frees.
mxfp4_pack_status captured(char** json, const std::function<bool()>& call) noexcept;

/// Copies the caller's structure. An older version's is shorter: its missing fields become zero.
template <class T>
T known(const T* given, const char* name) {
  if (!given) fail(ErrorKind::usage, "{} is null", name);
  if (given->size < sizeof(given->size) || given->size > sizeof(T))
    fail(ErrorKind::usage, "{}.size is {}, up to {} is known", name, given->size, sizeof(T));
  T whole = {};
  std::memcpy(&whole, given, given->size);
  return whole;
}

/// A required text. Throws Error{usage} if it is null or empty.
inline std::string needed(const char* text, const char* name) {
  if (!text || !*text) fail(ErrorKind::usage, "{} is not given", name);
  return text;
}
inline std::string or_empty(const char* text) { return text ? text : ""; }

}  // namespace mxfp4
