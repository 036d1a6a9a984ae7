#include "src/backends/serve.h"

#include "src/backends/loaders.h"

namespace mxfp4 {

namespace {

constexpr std::string_view unset = "unset:";

/// In capitals: a variable of the environment.
bool is_variable(std::string_view name) { return name.find_first_of("abcdefghijklmnopqrstuvwxyz") == name.npos; }

}  // namespace

std::string describe_settings(const Backend& backend, const Model& model) {
  std::string out;
  for (const Setting& s : backend.requires_) {
    if (s.when && !s.when(model)) continue;
    const std::string_view name = s.name;
    out += out.empty() ? "" : ", ";
    out += name.starts_with(unset) ? fmt::format("{} unset", name.substr(unset.size()))
                                   : fmt::format("{} {}", name, s.value);
  }
  return out;
}

std::string serve_command(const Backend& backend, const Model& model, const std::string& release, int tp_size,
                          const std::string& out) {
  if (!has_loader(backend, model.family, release)) return {};
  std::string command = environment_of(backend, model);
  command += fmt::format("{} serve {}", backend.engine, shell_word(out));
  if (tp_size > 1) command += fmt::format(" --tensor-parallel-size {}", tp_size);
  return command;
}

std::string environment_of(const Backend& backend, const Model& model) {
  std::string out;
  for (const Setting& s : backend.requires_)
    if (is_variable(s.name) && (!s.when || s.when(model))) out += fmt::format("{}={} ", s.name, shell_word(s.value));
  return out;
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace mxfp4
