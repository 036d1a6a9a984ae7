#include "src/cli/checkpoint_path.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/checkpoint/checkpoint.h"
#include "src/io/source_folder.h"
#include "src/packed/manifest.h"
#include "src/remote/address.h"

namespace mxfp4::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view front = "models--";
constexpr const char* main_file = "refs/main";
constexpr int64_t max_revision_bytes = 256;

/// The folder for repositories that `hf download` uses.
fs::path cache_folder() {
  if (const std::string hub = environment_text("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = environment_text("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(environment_text("HOME")) / ".cache/huggingface/hub";
}

bool is_repository_name(const std::string& text) {
  const auto usual = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/'; };
  return std::count(text.begin(), text.end(), '/') == 1 && text.front() != '/' && text.back() != '/' &&
         !text.starts_with(".") && std::all_of(text.begin(), text.end(), usual);
}

/// Removes the hub's address before the name, and a slash or "/tree/main" behind it. A path that exists stays as it is.
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

/// The folder of a repository such as "openai/gpt-oss-20b".
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

bool is_revision(const std::string& text) {
  const auto usual = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text != "." && text != ".." && std::all_of(text.begin(), text.end(), usual);
}

/// The text of refs/main. Throws Error{input} if it is not the name of a folder.
std::string main_revision(const std::string& repository) try {
  Problems problems;
  std::string text = SourceFolder(repository).text(main_file, max_revision_bytes, problems);
  problems.throw_if_any();
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  if (!is_revision(text))
    fail(ErrorKind::input, "{}: '{}'; the name of a folder in snapshots was expected", main_file, text);
  return text;
} catch (const Error& e) {
  fail(e.kind, "{}: {}", repository, e.lines.front());
}

/// Whether a snapshot is a folder of this repository, and not a link to another place.
bool is_own_folder(const fs::path& repository, const fs::path& snapshot) {
  std::error_code ec;
  const fs::path folder = fs::canonical(snapshot, ec);
  return fs::is_directory(folder, ec) && folder == fs::canonical(repository, ec) / "snapshots" / snapshot.filename();
}

/// The snapshot of the main branch. Without refs/main, the only snapshot; empty if there is none or there are several.
std::string snapshot_of(const fs::path& repository) {
  fs::path found;
  std::error_code ec;
  if (fs::symlink_status(repository / main_file, ec).type() != fs::file_type::not_found) {
    const std::string revision = main_revision(repository.string());
    found = repository / "snapshots" / revision;
    if (!fs::exists(found, ec))
      fail(ErrorKind::input,
           "{}: no snapshots/{}, which {} names; download the model again, or name a snapshot's folder",
           repository.string(), revision, main_file);
  } else {
    const auto all = folders_in(repository / "snapshots", "");
    if (all.size() != 1) return {};
    found = all.front();
  }
  if (is_own_folder(repository, found)) return found.string();
  fail(ErrorKind::input, "{}: a link or no folder; name the checkpoint's own folder", found.string());
}

/// The address of a remote source, or an empty text for a path. name: without the hub's address.
std::string remote_path(const std::string& given, const std::string& name) {
  if (name != given && is_repository_name(name)) return "hf://" + name;
  return given.find("://") == given.npos ? "" : parse_remote(given).shown;
}

bool is_in_cache(const std::string& name) {
  std::error_code ec;
  return fs::is_directory(folder_in_cache(name) / "snapshots", ec);
}

}  // namespace

std::string checkpoint_path(const std::string& given) {
  std::error_code ec;
  const std::string text = without_address(given);
  const std::string remote = remote_path(given, text);
  const bool is_cached = remote == "hf://" + text && is_in_cache(text);
  if (!remote.empty() && !is_cached) return remote;
  const fs::path path = is_cached ? folder_in_cache(text) : fs::path(text);
  const bool is_missing = !fs::exists(path, ec) && !ec, is_name = is_missing && is_repository_name(text);
  if (!is_missing && !fs::is_directory(path / "snapshots", ec)) {
    if (const auto models = folders_in(path, front); !models.empty() && !fs::exists(path / config_name, ec))
      fail(ErrorKind::input, "{}: a cache of {} models; choose one, for example {}", text, models.size(),
           models.front().string());
    return text;
  }
  const std::string found = is_missing && !is_name ? "" : snapshot_of(is_name ? folder_in_cache(text) : path);
  if (found.empty() && is_missing) refuse_unfinished(text);
  if (found.empty() && is_name && !fs::is_directory(path.parent_path(), ec))
    fail(ErrorKind::input,
         "{}: no such directory; for a model of that name on the Hugging Face hub give hf://{}, or download it with: "
         "hf download {} --local-dir {}",
         given, text, text, text.substr(text.find('/') + 1));
  if (found.empty() && is_missing)
    fail(ErrorKind::io,
         "{}: no such directory; a checkpoint directory was expected, or the name of a repository (OWNER/NAME) in the "
         "Hugging Face cache",
         given);
  if (found.empty())
    fail(ErrorKind::input, "{}: no {}, and no or several snapshots; name a snapshot's folder", text, main_file);
  note(fmt::format("{}: its snapshot {}", text, found));
  return found;
}

}  // namespace mxfp4::cli
