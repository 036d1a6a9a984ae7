#include "src/base/error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include "kernels/device_error.h"

namespace mxfp4 {

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::input:
      return "input";
    case ErrorKind::io:
      return "io";
    case ErrorKind::device:
      return "device";
    case ErrorKind::interrupted:
      return "interrupted";
  }
  return "?";
}

namespace {

/// Control characters; some terminals read U+0080 to U+009F as escapes. Also characters that change the direction of
/// text, end a line or a paragraph, or are invisible: two names that differ only in these would look the same.
bool is_control(char32_t c) {
  const auto from = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  return c < 0x20 || from(0x7F, 0x9F) || c == 0x061C || from(0x200B, 0x200F) || from(0x2028, 0x202E) ||
         from(0x2060, 0x2069) || c == 0xFEFF;
}

struct Character {
  char32_t code = 0;
  size_t bytes = 0;  // 0: no UTF-8
};

/// The UTF-8 character that `text` begins with.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return uint8_t(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t length = byte(0) < 0xC2 ? 0 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : byte(0) < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return {};
  char32_t c = byte(0) & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    c = c << 6 | (byte(i) & 0x3F);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};  // of each length
  const bool is_surrogate = c >= 0xD800 && c < 0xE000;
  if (c < least[length] || is_surrogate || c > 0x10FFFF) return {};
  return {c, length};
}

/// Bytes of the UTF-8 character that `text` begins with; 0 if that is no printable character.
size_t printable_length(std::string_view text) {
  const Character c = first_character(text);
  return is_control(c.code) ? 0 : c.bytes;
}

std::vector<std::string> all_printable(std::vector<std::string> lines) {
  for (std::string& line : lines) line = printable(line);
  return lines;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The text with a # for each number. `whole_parts`: numbers between dots alone, of layers and experts; others are part
/// of a name, "model-00001-of-00002.safetensors".
std::string pattern_of(std::string_view text, bool whole_parts) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_digit(text[end])) ++end;
    const bool is_part = i > 0 && text[i - 1] == '.' && (end == text.size() || text[end] == '.');
    if (end > i && (is_part || !whole_parts))
      out += '#';
    else
      out += text.substr(i, std::max<size_t>(end - i, 1));
    i = std::max(end, i + 1);
  }
  return out;
}

/// Whether the first number in which two names of one pattern differ is greater in `a`.
bool is_behind(std::string_view a, std::string_view b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    size_t end = i, other = j;
    while (end < a.size() && is_digit(a[end])) ++end;
    while (other < b.size() && is_digit(b[other])) ++other;
    const std::string_view n = a.substr(i, end - i), m = b.substr(j, other - j);
    if (n != m) return n.size() != m.size() ? n.size() > m.size() : n > m;
    i = std::max(end, i + 1);
    j = std::max(other, j + 1);
  }
  return false;
}

/// Explains a missing file with the hidden name of a run: only another run removes such files.
const char* why_gone(std::string_view file, int error) {
  const bool is_gone = error == ENOENT || error == ESTALE;
  return is_gone && file.find(".mxfp4-pack/") != file.npos ? "; another run of mxfp4-pack has moved or removed it" : "";
}

/// A word in the quotes of bash that escape unprintable characters.
std::string escaped_word(const std::string& text) {
  std::string out = "$'";
  for (const unsigned char c : text)
    out += c == '\'' || c == '\\' ? fmt::format("\\{}", char(c))
           : c < ' ' || c > '~'   ? fmt::format("\\{:03o}", c)
                                  : std::string(1, char(c));
  return out + "'";
}

}  // namespace

Error::Error(ErrorKind k, std::vector<std::string> l)
    : std::runtime_error(l.empty() ? "error" : printable(l.front())), kind(k), lines(all_printable(std::move(l))) {}

Error caught() {
  try {
    throw;
  } catch (const Error& e) {
    return e;
  } catch (const DeviceError& e) {
    return {ErrorKind::device, e.what()};
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::filesystem::filesystem_error& e) {
    const std::string at = e.path1().empty() ? "" : e.path1().string() + ": ";
    return {ErrorKind::io, at + e.code().message() + why_gone(at, e.code().value())};
  } catch (const std::exception& e) {
    return {ErrorKind::io, e.what()};
  }
}

void fail_errno(std::string_view file, std::string_view action, int error) {
  fail(ErrorKind::io, "{}: {}: {}{}", file, action, std::strerror(error), why_gone(file, error));
}

void KeptLines::add(std::string_view kind_name, std::string_view where, std::string_view text) {
  constexpr int64_t most = 100;
  ++count_;
  const size_t tensor = where.rfind(": ");
  const bool has_tensor = tensor != where.npos;
  const std::string place = pattern_of(where, !has_tensor), pattern = place + ": " + pattern_of(text, true);
  if (const auto known = by_pattern_.find(pattern); known != by_pattern_.end() && place != where) {
    Line& line = lines_[known->second];
    ++line.count;
    const std::string name = printable(has_tensor ? where.substr(tensor + 2) : where);
    if (is_behind(name, line.last)) line.last = name;
    return;
  }
  Kind& kind = kinds_[kind_name];
  if (kind.kept == most) {
    ++kind.left_out;
    return;
  }
  by_pattern_.emplace(pattern, lines_.size());
  lines_.push_back({printable(where.empty() ? std::string(text) : fmt::format("{}: {}", where, text)),
                    printable(has_tensor ? where.substr(tensor + 2) : where)});
  ++kind.kept;
  kind.end = lines_.size();
}

std::vector<std::string> KeptLines::list() const {
  std::map<size_t, int64_t> more;  // by the number of lines before
  for (const auto& [name, kind] : kinds_)
    if (kind.left_out > 0) more[kind.end] = kind.left_out;
  std::vector<std::string> out;
  for (size_t i = 0; i < lines_.size(); ++i) {
    const Line& line = lines_[i];
    out.push_back(line.count == 1 ? line.text
                                  : fmt::format("{} ({} such, the last is {})", line.text, line.count, line.last));
    if (const auto at = more.find(i + 1); at != more.end())
      out.push_back(fmt::format("... and {} more of the same kind", at->second));
  }
  return out;
}

void Problems::add(const Error& error) {
  for (const std::string& line : error.lines) errors_.add("an error's line", "", line);
}

void Problems::keep_place(std::string_view where) {
  constexpr size_t most = 100'000;
  const size_t tensor = where.rfind(": ");
  if (places_.size() < most) places_.emplace(where.substr(tensor == where.npos ? 0 : tensor + 2));
}

bool Problems::is_about(std::string_view name) const {
  for (size_t end = name.size(); end != name.npos; end = end > 0 ? name.rfind('.', end - 1) : name.npos)
    if (places_.contains(name.substr(0, end))) return true;
  const std::string inner = std::string(name) + ".";
  const auto it = places_.lower_bound(inner);
  return it != places_.end() && it->starts_with(inner);
}

void Problems::throw_if_any() const {
  if (any()) throw Error(ErrorKind::input, errors());
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = printable_length(text);
    out += length ? std::string(text.substr(0, length)) : fmt::format("\\x{:02x}", uint8_t(text[0]));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string printable_json(std::string_view json) {
  std::string out;
  while (!json.empty()) {
    const Character c = first_character(json);
    const std::string_view text = json.substr(0, std::max<size_t>(c.bytes, 1));
    const bool is_shown = !is_control(c.code) || c.code == '\n';  // between values: in strings it is escaped already
    out += is_shown ? std::string(text) : fmt::format("\\u{:04x}", uint32_t(c.code));
    json.remove_prefix(text.size());
  }
  return out;
}

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const size_t length = printable_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos) return text;
  if (!is_printable(text)) return escaped_word(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string where(std::string_view file, std::string_view tensor) { return fmt::format("{}: {}", file, tensor); }

}  // namespace mxfp4
