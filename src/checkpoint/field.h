// A value in a JSON document with its place, so that errors can give the path to the value.
#pragma once

#include <functional>
#include <string>

#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

/// The text of messages about a document: its name, and the likely cause if a value is missing or of another type.
struct Document {
  std::string name;
  const char* hint = "";
};

/// Each function that reads throws Error{input}, "mxfp4-pack.json: sets[0].tensors[3]: no 'rank'; damaged?", if the
/// value is missing or of another type.
class Field {
 public:
  Field(const Json& json, const Document& document) : json_(json), document_(document) {}

  const Json& json() const { return json_; }
  bool has(const char* key) const { return json_.is_object() && json_.contains(key); }
  /// A member that must exist. This field must outlive the member.
  Field at(const char* key) const;
  /// An entry of a list. This field must outlive the entry.
  Field entry(const Json& json, size_t index) const { return {json, *this, nullptr, index}; }
  /// Every entry of a list, in order.
  void each(const std::function<void(const Field&)>& use) const;

  std::string text() const;
  /// 32 hexadecimal digits.
  Hash hash() const;
  /// A text that is used as a path below a directory.
  std::string file_name() const;
  /// A whole number from 0 to `most`.
  int64_t number(int64_t most = max_checkpoint_bytes) const;
  double real() const;
  bool flag() const;

  /// The path to the value: "sets[0].tensors[3] (w2_weight).rank", with the names of entries of lists; empty for the
  /// document.
  std::string path() const;
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_as(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  Field(const Json& json, const Field& parent, const char* key, size_t index)
      : json_(json), document_(parent.document_), parent_(&parent), key_(key), index_(index) {}
  [[noreturn]] void refuse_as(const std::string& what) const;

  const Json& json_;
  const Document& document_;
  const Field* parent_ = nullptr;
  const char* key_ = nullptr;  // null: an entry of a list
  size_t index_ = 0;
};

}  // namespace mxfp4
