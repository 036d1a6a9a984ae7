#include "src/base/terminal.h"

#include <fmt/color.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>
#include <sstream>

namespace mxfp4 {

namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

bool has_color(int fd) {
  if (is_set("NO_COLOR")) return false;
  const char* forced = std::getenv("CLICOLOR_FORCE");
  return is_terminal(fd) || (is_set("CLICOLOR_FORCE") && std::string_view(forced) != "0");
}

fmt::text_style style_of(Tone tone) {
  switch (tone) {
    case Tone::heading:
      return fmt::emphasis::bold;
    case Tone::good:
      return fmt::fg(fmt::terminal_color::green);
    case Tone::bad:
      return fmt::emphasis::bold | fmt::fg(fmt::terminal_color::red);
    case Tone::caution:
      return fmt::fg(fmt::terminal_color::yellow);
  }
  return {};
}

/// Letters to insert, remove, replace or swap with the next.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last, now(b.size() + 1);
  std::iota(now.begin(), now.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    before = last;
    last = now;
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
  }
  return now.back();
}

/// "12", "(0.5", "3:07".
bool is_number(const std::string& word) {
  return word.find_first_not_of("(0123456789.:") == word.npos && std::isdigit(static_cast<unsigned char>(word.back()));
}

/// Reads the next word. A number and the word after it stay together, as does quoted text, so that a quoted command can
/// be copied.
bool next_word(std::istringstream& words, std::string& word) {
  if (!(words >> word)) return false;
  if (std::string unit; is_number(word) && next_word(words, unit)) word += ' ' + unit;
  const auto is_open = [&] { return word.front() == '\'' && word.find('\'', 1) == word.npos; };
  const std::string first = word;
  const auto end = words.tellg();
  for (std::string next; is_open() && words >> next;) word += ' ' + next;
  if (!is_open() || word == first) return true;
  word = first;  // the quote is not closed
  words.clear();
  words.seekg(end);
  return true;
}

}  // namespace

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) && !(term && std::string_view(term) == "dumb");
}

int terminal_width(int fd) {
  struct winsize size;
  if (!::isatty(fd) || ::ioctl(fd, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

int text_width(int fd) {
  const int columns = terminal_width(fd);
  return columns > 0 ? std::clamp(columns, 40, 100) : 80;
}

std::string toned(Tone tone, std::string_view text, int fd) {
  return has_color(fd) ? fmt::format(style_of(tone), "{}", text) : std::string(text);
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  bool escape = false;
  for (const char c : text) {
    escape |= c == '\x1b';
    columns += !escape && (c & 0xC0) != 0x80;  // a character of UTF-8 is one
    escape &= c != 'm';
  }
  return columns;
}

std::string wrapped(const std::string& text, int width, int indent) {
  const std::string new_line = fmt::format("\n{:{}}", "", indent);
  std::istringstream lines(text);
  std::string out, word;
  for (std::string line; std::getline(lines, line);) {
    if (!out.empty()) out += new_line;
    int column = indent;
    for (std::istringstream words(line); next_word(words, word); column += int(columns_of(word))) {
      if (column > indent && column + 1 + int(columns_of(word)) > width) {
        out += new_line;
        column = indent;
      } else if (column > indent) {
        out += ' ';
        ++column;
      }
      out += word;
    }
  }
  return out;
}

std::string fitted(const std::string& line, int indent, int fd) {
  const int columns = terminal_width(fd);
  return columns > 0 ? wrapped(line, columns, indent) : line;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  std::string found;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& c : candidates) {
    const bool begins = word.size() >= 3 && c.starts_with(word);
    if (const size_t d = begins ? 1 : distance(word, c); d < least && d < word.size()) {
      least = d;
      found = c;
    }
  }
  return found.empty() ? "" : fmt::format("; did you mean {}?", found);
}

}  // namespace mxfp4
