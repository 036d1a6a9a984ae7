#include "src/backends/engine.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "src/base/error.h"
#include "src/base/folder.h"
#include "src/base/log.h"
#include "src/base/terminal.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// The python3 that a shell would run; empty if there is none.
fs::path python3() {
  std::error_code ec;
  if (const char* env = std::getenv("VIRTUAL_ENV"); env && *env) {
    const fs::path python = fs::path(env) / "bin/python3";
    return fs::exists(python, ec) ? python : fs::path();
  }
  const char* path = std::getenv("PATH");
  for (std::string_view left = path ? path : ""; !left.empty();) {
    const size_t end = std::min(left.find(':'), left.size());
    const fs::path python = fs::path(left.substr(0, end)) / "python3";
    if (fs::is_regular_file(python, ec)) return python;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return {};
}

/// The package directories of a python3: PREFIX/lib/python3.11/site-packages and Debian's names for it.
std::vector<fs::path> package_folders(const fs::path& python) {
  std::error_code ec;
  const std::string own = fs::canonical(python, ec).filename().string();  // "python3.11"
  const fs::path prefix = python.parent_path().parent_path();
  std::vector<fs::path> out;
  for (const char* lib : {"lib", "lib64", "local/lib"})
    for (const std::string& version : {own, std::string("python3")})
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const fs::path folder = prefix / lib / version / packages;
        if (fs::is_directory(folder, ec)) out.push_back(folder);
      }
  return out;
}

std::string installed_version(const Engine& engine) {
  const fs::path python = python3();
  if (python.empty())
    fail(ErrorKind::usage, "--engine {}==installed: there is no python3 in VIRTUAL_ENV or PATH", engine.name);
  const std::string begin = std::string(engine.name) + "-", end = ".dist-info";
  for (const fs::path& folder : package_folders(python))
    for (const std::string& name : names_in_folder(folder))
      if (name.starts_with(begin) && name.ends_with(end) && name.size() > begin.size() + end.size())
        return name.substr(begin.size(), name.size() - begin.size() - end.size());
  fail(ErrorKind::usage, "--engine {0}==installed: {1} has no {0}", engine.name, python.string());
}

/// The release itself, or the last known one before it.
std::string known_release(const Engine& engine, const std::string& release) {
  std::string before = release;
  for (const char* const known : engine.releases) {
    if (compare_versions(known, release) == 0 && !is_prerelease(release)) return release;
    if (compare_versions(known, release) <= 0) before = known;
  }
  if (before != release)
    warn(fmt::format("{} {} is not a known release; it is assumed to load the same layouts as {}", engine.name, release,
                     before));
  return before;
}

}  // namespace

std::string or_newest(const std::string& release, std::string_view engine) {
  return release.empty() ? find_engine(engine).known.last : release;
}

std::string engine_list(const char* separator) {
  std::string out;
  for (const Engine& e : engines) out += (out.empty() ? "" : separator) + std::string(e.name);
  return out;
}

const Engine& find_engine(std::string_view name) {
  std::vector<std::string> names;
  for (const Engine& e : engines) {
    if (name == e.name) return e;
    names.push_back(e.name);
  }
  fail(ErrorKind::usage, "no engine '{}', but {}{}", name, engine_list(", "), did_you_mean(std::string(name), names));
}

EngineRequest read_engine(const std::string& text) {
  const size_t at = text.find("==");
  EngineRequest request{text.substr(0, at), at == text.npos ? "" : text.substr(at + 2)};
  const Engine& engine = find_engine(request.name);
  if (at != text.npos && request.version.empty())
    fail(ErrorKind::usage, "--engine {0}: no release after ==; {1}=={2} for example, or {1}==installed", text,
         engine.name, engine.known.last);
  if (request.version == "installed") request.version = installed_version(engine);
  if (request.version.empty()) return request;
  if (!is_version(request.version))
    fail(ErrorKind::usage, "--engine {0}: no release of {1}; {1}=={2} for example, or {1}==installed", text,
         engine.name, engine.known.last);
  if (compare_versions(request.version, engine.known.first) < 0)
    fail(ErrorKind::usage, "{} {} is older than {}, the oldest known release", engine.name, request.version,
         engine.known.first);
  if (compare_versions(request.version, engine.known.last) > 0)
    warn(fmt::format("{0} {1} is newer than {2}, the newest known release; it is assumed to load the same layouts",
                     engine.name, request.version, engine.known.last));
  else
    request.version = known_release(engine, request.version);
  return request;
}

void settle_engine(std::string& engine, std::string& release) {
  EngineRequest request = read_engine(engine);
  engine = std::move(request.name);
  release = std::move(request.version);
}

}  // namespace mxfp4
