#include <algorithm>
#include <cmath>

#include "src/checkpoint/checkpoint.h"

namespace mxfp4 {

namespace {

constexpr int64_t max_count = int64_t(1) << 40;

/// Objects that describe the language model of a larger one. thinker_config has a text_config of its own.
constexpr const char* language_models[] = {"text_config", "llm_config", "language_config", "thinker_config"};

const Json* config_value(const Json& config, const char* key, int depth = 2) {
  if (!config.is_object() || !key) return nullptr;
  if (const auto it = config.find(key); it != config.end()) return &*it;
  for (const char* inner : language_models)
    if (const auto text = config.find(inner); depth > 0 && text != config.end())
      if (const Json* value = config_value(*text, key, depth - 1)) return value;
  return nullptr;
}

/// The number of a list that gives each layer the same (HunYuan's); else the value itself.
const Json& same_of_all(const Json& value) {
  const bool is_same = value.is_array() && !value.empty() && value.front().is_number() &&
                       std::all_of(value.begin(), value.end(), [&](const Json& v) { return v == value.front(); });
  return is_same ? value.front() : value;
}

/// Engines compute with these numbers in float32, and `verify` with their products. The bounds are far beyond every
/// known model's numbers, and keep the products finite. -0.0 is refused, because writing the JSON again loses its sign.
bool is_computable(const Json& value) {
  constexpr double most = 1 << 20;
  const double number = value.is_number() ? value.get<double>() : -1;
  return number == 0 ? !std::signbit(number) : number >= 1 / most && number <= most;
}

}  // namespace

std::string json_string(const Json& object, const char* key, std::string otherwise) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && it != object.end() && it->is_string() ? it->get<std::string>() : std::move(otherwise);
}

std::string config_string(const Json& config, const char* key, std::string otherwise) {
  const Json* value = config_value(config, key);
  return value && value->is_string() ? value->get<std::string>() : std::move(otherwise);
}

double config_number(const Json& config, const char* key, double otherwise) {
  const Json* value = config_value(config, key);
  return value && same_of_all(*value).is_number() ? same_of_all(*value).get<double>() : otherwise;
}

std::optional<bool> config_flag(const Json& config, const char* key) {
  const Json* value = config_value(config, key);
  return value && value->is_boolean() ? std::optional(value->get<bool>()) : std::nullopt;
}

int64_t config_count(const Json& config, const char* key, int64_t otherwise) {
  const double value = config_number(config, key, -1);
  return value >= 1 && value <= double(max_count) && value == std::floor(value) ? int64_t(value) : otherwise;
}

const Json* quantization_config(const Json& config) {
  for (const char* key : {"quantization_config", "compression_config"})
    if (const Json* found = config_value(config, key); found && !found->is_null())
      return found->is_object() ? found : nullptr;
  return nullptr;
}

void check_config_types(const Json& config, const ConfigTypes& types, Problems& problems) {
  const auto check = [&](const char* key, const char* expected, auto right) {
    const Json* value = config_value(config, key);
    if (!value || value->is_null() || right(*value)) return;
    const std::string is = python_text(*value);
    problems.error(config_name, "{} is {:.60}{}, {} expected", key, is, is.size() > 60 ? ".." : "", expected);
  };
  for (const char* key : types.strings) check(key, "a string", [](const Json& v) { return v.is_string(); });
  for (const char* key : types.numbers) check(key, "0 or a number from 2^-20 to 2^20", is_computable);
  const auto check_count = [&](const char* key, int64_t most, const std::string& expected) {
    check(key, expected.c_str(), [&](const Json&) {
      const int64_t count = config_count(config, key, 0);
      return count > 0 && count <= most;
    });
  };
  for (const char* key : types.counts) check_count(key, max_count, "a whole number of at least 1");
  for (const char* key : layer_keys)
    check_count(key, most_layers, fmt::format("a whole number from 1 to {}", most_layers));
  check("quantization_config", "an object", [](const Json& v) { return v.is_object(); });
}

}  // namespace mxfp4
