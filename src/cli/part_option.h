// --part I/N, or what the scheduler that started this process says.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "src/cli/options.h"
#include "src/convert/merge.h"
#include "src/io/parts.h"

namespace mxfp4::cli {

/// "I/N" with 0 <= I < N, or "auto": what the environment says. Throws Error{usage}.
PartNumber read_part(const std::string& text);

/// --part and --merge of a command.
struct PartOptions {
  std::string text;  // as given
  bool merge = false;
  std::optional<PartNumber> number() const;
};
/// out: what the command's help calls its output. others: options that do not go with --part.
void add_part(CLI::App* app, PartOptions& part, const std::string& out, std::initializer_list<const char*> others);

/// Whoever is last merges: true where OUT is there then. That it cannot be done now takes nothing from the part that
/// was written.
bool merge_if_whole(const MergeOptions& options);

}  // namespace mxfp4::cli
