// --part I/N, or auto: the part number from the scheduler that started this process.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "src/cli/options.h"
#include "src/convert/merge.h"
#include "src/io/parts.h"

namespace mxfp4::cli {

/// Reads "I/N" with 0 <= I < N, or "auto": the number in the environment. Throws Error{usage}.
PartNumber read_part(const std::string& text);

/// --part and --merge of a command.
struct PartOptions {
  std::string text;  // as given
  bool merge = false;
  std::optional<PartNumber> number() const;
};
/// others: options that exclude --part.
void add_part(CLI::App* app, PartOptions& part, std::initializer_list<const char*> others);

/// Merges if all parts exist; so the last process merges. Returns whether OUT is complete. If merging is not possible
/// now, that is only a note, since the part itself is written.
bool merge_if_whole(const MergeOptions& options);

}  // namespace mxfp4::cli
