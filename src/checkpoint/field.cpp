#include "src/checkpoint/field.h"

namespace mxfp4 {

Field Field::at(const char* key) const {
  if (!json_.is_object()) refuse("no object{}", document_.hint);
  if (!has(key)) refuse("no '{}'{}", key, document_.hint);
  return {*json_.find(key), *this, key, 0};
}

void Field::each(const std::function<void(const Field&)>& use) const {
  if (!json_.is_array()) refuse("no list{}", document_.hint);
  for (size_t i = 0; i < json_.size(); ++i) use(Field(json_[i], *this, nullptr, i));
}

std::string Field::text() const {
  if (!json_.is_string()) refuse("no string{}", document_.hint);
  return json_.get<std::string>();
}

Hash Field::hash() const {
  Hash hash;
  if (!parse_hex(text(), hash)) refuse("no checksum of 32 hexadecimal digits{}", document_.hint);
  return hash;
}

std::string Field::file_name() const {
  std::string name = text();
  if (!is_safe_name(name)) refuse("unsafe file name '{}'", name);
  return name;
}

int64_t Field::number(int64_t most) const {
  if (!json_.is_number_unsigned() || json_.get<uint64_t>() > uint64_t(most))
    refuse("no number from 0 to {}{}", most, document_.hint);
  return json_.get<int64_t>();
}

double Field::real() const {
  if (!json_.is_number()) refuse("no number{}", document_.hint);
  return json_.get<double>();
}

bool Field::flag() const {
  if (!json_.is_boolean()) refuse("neither true nor false{}", document_.hint);
  return json_.get<bool>();
}

std::string Field::path() const {
  if (!parent_) return {};
  const std::string before = parent_->path();
  if (!key_) {
    const auto name = json_.is_object() ? json_.find("name") : json_.end();
    const bool is_named = name != json_.end() && name->is_string();
    return fmt::format("{}[{}]{}", before, index_,
                       is_named ? fmt::format(" ({})", printable(name->get<std::string>())) : "");
  }
  return before.empty() ? key_ : before + "." + key_;
}

void Field::refuse_as(const std::string& what) const {
  const std::string place = path();
  fail(ErrorKind::input, "{}: {}{}", document_.name, place.empty() ? "" : place + ": ", what);
}

}  // namespace mxfp4
