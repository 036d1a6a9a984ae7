// The safetensors container, with the header rules of the reference implementation (0.8.0). In addition, duplicate
// keys, unknown fields and control characters in names are refused. Every message names its tensor.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace mxfp4 {

class Fd;

enum class Dtype : uint8_t {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};
const char* name_of(Dtype dtype);
int bits_of(Dtype dtype);

/// A tensor in a file. Data are row-major and little-endian.
struct Tensor {
  std::string name;
  Dtype dtype = Dtype::U8;
  std::vector<int64_t> shape;
  int file = 0;        // index of the file; 0 if there is only one
  int64_t offset = 0;  // from the start of the file, bytes
  int64_t bytes = 0;
};

/// Bytes [offset, offset + bytes) of a tensor.
struct TensorRange {
  const Tensor* tensor = nullptr;
  int64_t offset = 0, bytes = 0;
  /// The offset in the tensor's file.
  int64_t in_file() const { return tensor->offset + offset; }
  friend bool operator==(const TensorRange&, const TensorRange&) = default;
};

/// "F8_E8M0 [2, 96]".
std::string describe(Dtype dtype, const std::vector<int64_t>& shape);

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct Header {
  std::vector<Tensor> tensors;  // by offset
  Metadata metadata;
  int64_t data_offset = 0;  // 8 + header length
  std::string text;         // the JSON, verbatim
};

inline constexpr int64_t max_header_bytes = 100'000'000;

/// Checks a header's JSON against a file of `file_bytes`. Faults are added to `problems` under the name `file`; then no
/// tensors are returned.
Header parse_header(std::string_view json, int64_t file_bytes, std::string_view file, Problems& problems);

/// A description of a file in another format (a Git LFS pointer, GGUF, pickle or metal), with advice. Empty if the
/// format is unknown.
std::string foreign_format_of(const Fd& file);
/// A message if a file of any kind is a Git LFS pointer; else empty.
std::string lfs_pointer(const Fd& file);

/// Parses a file's header; the length is checked against the file before memory is taken. `shown` is the name in
/// messages. I/O errors throw. file_bytes: the file's size if `file` has only its begin; -1: `file` is whole.
Header read_header(const Fd& file, std::string_view shown, Problems& problems, int64_t file_bytes = -1);
/// Reads the header of a single file.
Header read_header(const std::string& path, std::string_view shown, Problems& problems);

/// A header's JSON after its length field, as at the begin of a file.
std::string with_length(const std::string& json);

/// The length field and JSON of a header for `tensors`, whose offsets are relative to the data section. Spaces are
/// appended so that the data start at a multiple of `alignment`.
std::string write_header(const std::vector<Tensor>& tensors, const Metadata& metadata, int64_t alignment);

/// Bytes of a tensor of this dtype and shape; -1 if the number overflows or is not whole.
int64_t tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape);

/// Sets `dtype`. Returns false if the text is no dtype.
bool parse_dtype(std::string_view text, Dtype& dtype);

}  // namespace mxfp4
