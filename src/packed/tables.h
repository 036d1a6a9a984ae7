// The tables of an output: files with a line of JSON for each tensor. One describes the source's tensors, and each set
// has one of its packed tensors.
#pragma once

#include <string>
#include <string_view>

#include "src/base/long_text.h"
#include "src/packed/manifest.h"

namespace mxfp4 {

inline constexpr const char* source_table_name = "packed/source-tensors.jsonl";
/// "packed/tensors-0.jsonl"
std::string set_table_name(int set);

/// All must live as long as the returned.
TextSource source_table(const Plan& plan, const TensorSums& sums);
TextSource set_table(const Plan& plan, const TensorSums& sums);

/// "model", "mtp"
const char* name_of(LayerKind kind);
/// "[2,96]"
std::string list_text(const Dims& list);

/// Takes a line of the source's table: what it says of one of source.tensors, which is listed then. Throws Error{input}
/// that names the line.
void take_source_line(std::string_view line, const std::string& place, Manifest& manifest, std::vector<bool>& listed);
void take_set_line(std::string_view line, const std::string& place, ManifestSet& set);

/// Reads a table, which is listed, line by line. place: "packed/tensors-0.jsonl: line 3", for messages. A problem if it
/// does not have its checksum.
void each_line(const std::string& path, const ListedFile& listed, Problems& problems,
               const std::function<void(std::string_view line, const std::string& place)>& use);

}  // namespace mxfp4
