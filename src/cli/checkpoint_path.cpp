#include "src/cli/checkpoint_path.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/log.h"
#include "src/checkpoint/checkpoint.h"

namespace mxfp4::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view front = "models--";

std::string of_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Where hf download puts repositories.
fs::path cache_folder() {
  if (const std::string hub = of_environment("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = of_environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(of_environment("HOME")) / ".cache/huggingface/hub";
}

bool is_repository_name(const std::string& text) {
  const auto usual = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/'; };
  return std::count(text.begin(), text.end(), '/') == 1 && text.front() != '/' && text.back() != '/' &&
         !text.starts_with(".") && std::all_of(text.begin(), text.end(), usual);
}

/// Without the hub's address in front and the slash or main branch behind, where the text is no path that exists.
std::string without_address(std::string text) {
  constexpr std::string_view branch = "/tree/main";
  std::error_code ec;
  if (fs::exists(text, ec) || ec) return text;
  for (const std::string_view address :
       {"https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/", "hf://"})
    if (text.starts_with(address)) text.erase(0, address.size());
  while (text.ends_with('/')) text.pop_back();
  if (text.ends_with(branch)) text.erase(text.size() - branch.size());
  return text;
}

/// Of a repository "openai/gpt-oss-20b".
fs::path folder_in_cache(std::string name) {
  name.replace(name.find('/'), 1, "--");
  return cache_folder() / (std::string(front) + name);
}

std::vector<fs::path> folders_in(const fs::path& folder, std::string_view begin) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (const std::string& name : names_in_folder(folder, Unreadable::skip))
    if (name.starts_with(begin) && fs::is_directory(folder / name, ec)) out.push_back(folder / name);
  return out;
}

/// The snapshot of the main branch, or the only one; empty where there is none.
std::string snapshot_of(const fs::path& repository) {
  std::ifstream in(repository / "refs/main");
  std::string commit;
  std::error_code ec;
  if (in >> commit && fs::is_directory(repository / "snapshots" / commit, ec))
    return (repository / "snapshots" / commit).string();
  const auto all = folders_in(repository / "snapshots", "");
  return all.size() == 1 ? all.front().string() : "";
}

}  // namespace

std::string checkpoint_path(const std::string& given) {
  std::error_code ec;
  const std::string text = without_address(given);
  const fs::path path(text);
  const bool is_missing = !fs::exists(path, ec) && !ec, is_name = is_missing && is_repository_name(text);
  if (!is_missing && !fs::is_directory(path / "snapshots", ec)) {
    if (const auto models = folders_in(path, front); !models.empty() && !fs::exists(path / config_name, ec))
      fail(ErrorKind::input, "{}: a cache of {} models; say which, {} for example", text, models.size(),
           models.front().string());
    return text;
  }
  const std::string found = is_missing && !is_name ? "" : snapshot_of(is_name ? folder_in_cache(text) : path);
  if (found.empty() && is_name && !fs::is_directory(path.parent_path(), ec))
    fail(ErrorKind::input,
         "{}: no such directory; a model of that name on the Hugging Face hub is fetched with: hf download {} "
         "--local-dir {}",
         given, text, text.substr(text.find('/') + 1));
  if (found.empty() && is_missing)
    fail(ErrorKind::io,
         "{}: no such directory; a checkpoint directory was expected, or the name of a repository (OWNER/NAME) in the "
         "Hugging Face cache",
         given);
  if (found.empty()) fail(ErrorKind::input, "{}: none of its snapshots is that of refs/main", text);
  note(fmt::format("{}: its snapshot {}", text, found));
  return found;
}

}  // namespace mxfp4::cli
