// Parts of the manifest's text for its writer and its reader.
#pragma once

namespace mxfp4 {

inline constexpr const char* manifest_name = "mxfp4-pack.json";

/// An entry of `needs`: the reader must support sets made with a layout file.
inline constexpr const char* layout_file_need = "layout_file";

/// The placeholder for the manifest's own checksum while that checksum is computed.
inline constexpr const char* no_checksum = "00000000000000000000000000000000";

}  // namespace mxfp4
