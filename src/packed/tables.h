// The tables of an output: files with one line of JSON for each tensor. One table lists the source's tensors, and each
// set has a table of its packed tensors.
#pragma once

#include <string>
#include <string_view>

#include "src/base/long_text.h"
#include "src/packed/manifest.h"

namespace mxfp4 {

inline constexpr const char* source_table_name = "packed/source-tensors.jsonl";
/// "packed/tensors-0.jsonl"
std::string set_table_name(int set);

/// The arguments must outlive the returned function.
TextSource source_table(const Plan& plan, const TensorSums& sums);
TextSource set_table(const Plan& plan, const TensorSums& sums);

/// "model", "mtp"
const char* name_of(LayerKind kind);
/// "[2,96]"
std::string list_text(const Dims& list);

/// Reads a line of a table into the manifest or a set. Each line must describe a tensor that is not listed yet;
/// take_source_line() sets listed[i] for source.tensors[i]. Throws Error{input} that names the line.
void take_source_line(std::string_view line, const std::string& place, Manifest& manifest, std::vector<bool>& listed);
void take_set_line(std::string_view line, const std::string& place, ManifestSet& set);

/// Reads a listed table line by line. place: the line's name in messages, such as "packed/tensors-0.jsonl: line 3". If
/// the table does not have its checksum, it is a problem.
void each_line(const std::string& path, const ListedFile& listed, Problems& problems,
               const std::function<void(std::string_view line, const std::string& place)>& use);

}  // namespace mxfp4
