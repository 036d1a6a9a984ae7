// Parts of the manifest's text that its writer and its reader share.
#pragma once

namespace mxfp4 {

inline constexpr const char* manifest_name = "mxfp4-pack.json";

/// What a reader must know to use a set that was made with a layout file.
inline constexpr const char* layout_file_need = "layout_file";

/// Stands where the manifest's own checksum goes while it is made.
inline constexpr const char* no_checksum = "00000000000000000000000000000000";

}  // namespace mxfp4
