#include "src/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "src/base/file.h"
#include "src/base/json.h"

namespace mxfp4 {

static_assert(std::endian::native == std::endian::little && sizeof(size_t) == 8, "files are little-endian and large");

namespace {

constexpr size_t max_rank = 64;

struct DtypeRow {
  const char* name;
  int bits;
};
constexpr DtypeRow dtypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

/// {"name": {"dtype": .., "shape": [..], "data_offsets": [b, e]}, .., "__metadata__": {"key": "value"}}
struct HeaderSax : SaxBase {
  using number_integer_t = int64_t;
  struct Entry {
    std::string name;
    std::optional<std::string> dtype;
    std::vector<int64_t> shape, offsets;
    bool has_shape = false, has_offsets = false;
  };
  std::vector<Entry> entries;
  Metadata metadata;
  std::unordered_set<std::string> metadata_keys;
  bool in_metadata = false, has_metadata = false;
  std::string field;
  std::vector<int64_t>* numbers = nullptr;

  HeaderSax() { max_depth = 3; }
  bool unexpected(const char* what) {
    return refuse(depth == 0 ? fmt::format("{} instead of an object", what)
                             : fmt::format("unexpected {} in the entry of '{}'", what, current()));
  }
  std::string current() const { return in_metadata || entries.empty() ? "__metadata__" : entries.back().name; }
  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("true or false"); }
  bool number_float(double, const std::string&) { return unexpected("fractional number"); }
  bool number_integer(int64_t) { return unexpected("negative number"); }
  bool number_unsigned(uint64_t v) {
    if (!numbers) return unexpected("number");
    if (v > uint64_t(INT64_MAX)) return unexpected("number above 2^63");
    if (numbers->size() == max_rank) return unexpected("list of more than 64 numbers");
    numbers->push_back(int64_t(v));
    return true;
  }
  bool string(std::string& v) {
    if (depth != 2 || (!in_metadata && field != "dtype")) return unexpected("string");
    if (in_metadata)
      metadata.emplace_back(field, std::move(v));
    else
      entries.back().dtype = std::move(v);
    return true;
  }
  bool start_object(size_t) {
    if (!enter()) return false;
    if (depth > 2) return unexpected("object");
    return true;
  }
  bool end_object() {
    if (--depth == 1) in_metadata = false;
    return true;
  }
  bool start_array(size_t) {
    if (depth != 2 || in_metadata || (field != "shape" && field != "data_offsets")) return unexpected("array");
    numbers = field == "shape" ? &entries.back().shape : &entries.back().offsets;
    return enter();
  }
  bool end_array() {
    --depth;
    numbers = nullptr;
    return true;
  }
  bool key(std::string& k) {
    if (depth == 1) {
      if (k.size() > max_name_bytes)
        return refuse(fmt::format("a name of {} bytes, at most {} expected", k.size(), max_name_bytes));
      in_metadata = k == "__metadata__";
      if (in_metadata && std::exchange(has_metadata, true)) return refuse("duplicate key '__metadata__'");
      if (!in_metadata) entries.push_back({std::move(k), {}, {}, {}});
      return true;
    } else if (in_metadata) {
      if (!metadata_keys.insert(k).second) return refuse(fmt::format("duplicate key '{}' in __metadata__", k));
    } else {
      Entry& e = entries.back();
      bool* seen = k == "shape" ? &e.has_shape : k == "data_offsets" ? &e.has_offsets : nullptr;
      if (!seen && k != "dtype") return refuse(fmt::format("unknown field '{}' in the entry of '{}'", k, e.name));
      if (seen ? std::exchange(*seen, true) : e.dtype.has_value())
        return refuse(fmt::format("duplicate key '{}' in the entry of '{}'", k, e.name));
    }
    field = std::move(k);
    return true;
  }
};

/// Converts an entry to a Tensor, with offsets relative to the data; false if the entry is unusable.
bool check_entry(HeaderSax::Entry& e, std::string_view file, Problems& problems, Tensor& t) {
  const std::string at = where(file, e.name);
  if (!is_printable(e.name)) return problems.error(at, "name has a control character"), false;
  if (!e.dtype || !e.has_shape || !e.has_offsets)
    return problems.error(at, "{} is missing", !e.dtype ? "dtype" : !e.has_shape ? "shape" : "data_offsets"), false;
  if (!parse_dtype(*e.dtype, t.dtype)) return problems.error(at, "unknown dtype '{}'", *e.dtype), false;
  if (e.offsets.size() != 2)
    return problems.error(at, "data_offsets has {} numbers, 2 expected", e.offsets.size()), false;
  t.bytes = tensor_bytes(t.dtype, e.shape);
  if (t.bytes < 0)
    return problems.error(at, "{} overflows or is no whole number of bytes", describe(t.dtype, e.shape)), false;
  t.offset = e.offsets[0];
  if (e.offsets[1] < e.offsets[0])
    return problems.error(at, "data_offsets end before they begin: [{}, {}]", e.offsets[0], e.offsets[1]), false;
  if (e.offsets[1] - e.offsets[0] != t.bytes)
    return problems.error(at, "data_offsets span {} bytes, {} needs {}", e.offsets[1] - e.offsets[0],
                          describe(t.dtype, e.shape), t.bytes),
           false;
  t.name = std::move(e.name);
  t.shape = std::move(e.shape);
  return true;
}

void check_duplicates(const std::vector<Tensor>& tensors, std::string_view file, Problems& problems) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const Tensor& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  for (size_t i = 1; i < names.size(); ++i)
    if (names[i] == names[i - 1] && (i < 2 || names[i] != names[i - 2]))
      problems.error(where(file, names[i]), "duplicate key in the header");
}

/// Checks that the first tensor begins at 0, each next one at the end of the one before, and that header and data fill
/// the file.
void check_cover(const std::vector<Tensor>& tensors, int64_t data_offset, int64_t file_bytes, std::string_view file,
                 Problems& problems) {
  int64_t end = 0;
  for (const Tensor& t : tensors) {
    if (t.offset != end)
      problems.error(where(file, t.name), "data begin at {}, {} expected ({})", t.offset, end,
                     t.offset > end ? "a hole" : "an overlap");
    end = t.offset + t.bytes;
  }
  const int64_t surplus = file_bytes - data_offset - end;
  if (surplus < 0)
    problems.error(file, "{} bytes expected, {} present; incomplete copy?", uint64_t(data_offset) + uint64_t(end),
                   file_bytes);
  if (surplus > 0)
    problems.error(file, "{} bytes expected, {} present: {} surplus at the end", data_offset + end, file_bytes,
                   surplus);
}

constexpr std::string_view lfs_version = "version https://git-lfs";

/// Describes a file of another format, by its first bytes; null if the format is unknown.
const char* foreign_format(std::string_view head) {
  auto starts = [&](std::string_view magic) { return head.substr(0, magic.size()) == magic; };
  if (starts(lfs_version)) return "this is a Git LFS pointer, not the file itself; run 'git lfs pull'";
  if (starts("GGUF"))
    return "this is a GGUF file, without config.json and usually with attention rounded to Q8_0; use the safetensors "
           "repository of the same model";
  if (starts("GPT-OSS v1.0"))
    return "this is a GPT-OSS metal file; use the safetensors checkpoint in the repository's root";
  if (starts("PK\x03\x04") || starts("\x80\x02") || starts("\x80\x04"))
    return "this is a PyTorch pickle; use the safetensors checkpoint";
  return nullptr;
}

}  // namespace

const char* name_of(Dtype dtype) { return dtypes[size_t(dtype)].name; }
int bits_of(Dtype dtype) { return dtypes[size_t(dtype)].bits; }

bool parse_dtype(std::string_view text, Dtype& dtype) {
  const auto* row = std::find_if(std::begin(dtypes), std::end(dtypes), [&](const auto& d) { return text == d.name; });
  if (row == std::end(dtypes)) return false;
  dtype = Dtype(row - dtypes);
  return true;
}

int64_t tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape) {
  int64_t bits = bits_of(dtype);
  for (int64_t d : shape)
    if (__builtin_mul_overflow(bits, d, &bits)) return -1;
  return bits % 8 ? -1 : bits / 8;
}

std::string describe(Dtype dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", name_of(dtype), fmt::join(shape, ", "));
}

Header parse_header(std::string_view json, int64_t file_bytes, std::string_view file, Problems& problems) {
  HeaderSax sax;
  Header header;
  header.data_offset = 8 + int64_t(json.size());
  if (!parse_sax(json, sax)) {
    problems.error(file, "invalid header: {}{}", sax.complaint,
                   sax.is_syntax ? fmt::format(" at byte {}", sax.complaint_at) : "");
    return header;
  }
  const int64_t before = problems.count();
  header.tensors.reserve(sax.entries.size());
  for (auto& e : sax.entries) {
    Tensor t;
    if (check_entry(e, file, problems, t)) header.tensors.push_back(std::move(t));
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const Tensor& a, const Tensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes != b.bytes ? a.bytes < b.bytes : a.name < b.name;
  });
  check_duplicates(header.tensors, file, problems);
  if (problems.count() == before) check_cover(header.tensors, header.data_offset, file_bytes, file, problems);
  if (problems.count() != before) return {};
  for (Tensor& t : header.tensors) t.offset += header.data_offset;
  header.metadata = std::move(sax.metadata);
  return header;
}

std::string foreign_format_of(const Fd& fd) {
  std::string head(size_t(std::min<int64_t>(fd.stat().st_size, 32)), '\0');
  fd.read(head.data(), int64_t(head.size()), 0);
  const char* foreign = foreign_format(head);
  return foreign ? foreign : "";
}

std::string lfs_pointer(const Fd& fd) {
  constexpr int64_t most = 1024;  // a pointer's limit in Git LFS's specification
  if (fd.stat().st_size >= most) return {};
  std::string head(size_t(std::min<int64_t>(fd.stat().st_size, int64_t(lfs_version.size()))), '\0');
  fd.read(head.data(), int64_t(head.size()), 0);
  return head == lfs_version ? foreign_format(head) : "";
}

Header read_header(const Fd& fd, std::string_view file, Problems& problems, int64_t file_bytes) {
  const int64_t bytes = file_bytes < 0 ? fd.stat().st_size : file_bytes;
  const auto refuse = [&](const std::string& what) {
    const std::string foreign = foreign_format_of(fd);
    return problems.error(file, "{}", foreign.empty() ? what : foreign), Header{};
  };
  if (bytes < 8) return refuse(fmt::format("{} bytes, at least 8 expected; incomplete copy?", bytes));
  uint64_t length;
  fd.read(&length, 8, 0);
  if (length > uint64_t(max_header_bytes))
    return refuse(
        fmt::format("header of {} bytes, at most {} expected; not a safetensors file?", length, max_header_bytes));
  if (int64_t(length) > bytes - 8)
    return refuse(fmt::format("header of {} bytes expected, {} present; incomplete copy?", length, bytes - 8));
  std::string json(length, '\0');
  fd.read(json.data(), int64_t(length), 8);
  Header header = parse_header(json, bytes, file, problems);
  header.text = std::move(json);
  return header;
}

Header read_header(const std::string& path, std::string_view file, Problems& problems) {
  return read_header(open_read(path, std::string(file)), file, problems);
}

std::string with_length(const std::string& json) {
  std::string out(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(out.data(), &length, 8);
  return out + json;
}

std::string write_header(const std::vector<Tensor>& tensors, const Metadata& metadata, int64_t alignment) {
  std::string json = "{";
  auto quoted = [](std::string_view s) { return Json(s).dump(); };
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) json += fmt::format("{}:{},", quoted(key), quoted(value));
    json.back() = '}';
    json += ',';
  }
  for (const Tensor& t : tensors)
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", quoted(t.name),
                        name_of(t.dtype), fmt::join(t.shape, ","), t.offset, t.offset + t.bytes);
  if (json.back() == ',') json.pop_back();
  json += '}';
  const int64_t end = (8 + int64_t(json.size()) + alignment - 1) / alignment * alignment;
  json.append(size_t(end - 8 - int64_t(json.size())), ' ');
  if (int64_t(json.size()) > max_header_bytes)
    fail(ErrorKind::input, "a header of {} bytes would be written, at most {} are allowed", json.size(),
         max_header_bytes);
  return with_length(json);
}

}  // namespace mxfp4
