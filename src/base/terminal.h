// Terminal output: width, colour and line breaks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mxfp4 {

/// Whether lines on a descriptor may be written over: a terminal, and TERM is not dumb.
bool is_terminal(int fd);
/// Columns of the terminal at a descriptor; 0 if the descriptor is no terminal.
int terminal_width(int fd);
/// The width to which text on a descriptor is broken: that of the terminal, limited to 40 to 100 columns, or 80.
int text_width(int fd);

enum class Tone { heading, good, bad, caution };
/// Text in the colour of a tone, if the descriptor shows colours: NO_COLOR forbids them, CLICOLOR_FORCE shows them also
/// off a terminal.
std::string toned(Tone tone, std::string_view text, int fd = 1);

/// The columns that a text needs, without the escapes of toned().
size_t columns_of(std::string_view text);
/// Text broken at spaces so that no line is wider than `width` unless one word is; a command in quotes is one, and a
/// number with the word behind it. The first line begins in column `indent`, the others with as many spaces. Line
/// breaks of the text stay.
std::string wrapped(const std::string& text, int width, int indent = 0);
/// A line broken to fit the terminal on the descriptor; continuation lines begin in column `indent` at the latest.
/// Unchanged if the descriptor is no terminal.
std::string fitted(const std::string& line, int indent = 2, int fd = 1);

/// "; did you mean X?" with the candidate nearest to a mistyped word; empty if none is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace mxfp4
