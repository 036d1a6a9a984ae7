#include "src/error.h"

#include <cstring>

namespace mxfp4 {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::usage:
      return "usage";
    case Kind::input:
      return "input";
    case Kind::io:
      return "io";
    case Kind::device:
      return "device";
    case Kind::interrupted:
      return "interrupted";
  }
  return "?";
}

Error::Error(Kind k, std::vector<std::string> l)
    : std::runtime_error(l.empty() ? "error" : l.front()), kind(k), lines(std::move(l)) {}

void fail_errno(std::string_view file, std::string_view action, int error) {
  fail(Kind::io, "{}: {}: {}", printable(file), action, std::strerror(error));
}

void Problems::throw_if_any() const {
  if (any()) throw Error(Kind::input, errors_);
}

std::string printable(std::string_view text) {
  std::string out;
  for (unsigned char c : text)
    if (c < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", c);
    else
      out += char(c);
  return out;
}

std::string where(std::string_view file, std::string_view tensor) {
  return fmt::format("{}: {}", printable(file), printable(tensor));
}

}  // namespace mxfp4
