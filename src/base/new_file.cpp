#include "src/base/new_file.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>

#include "src/base/error.h"

namespace mxfp4 {

namespace fs = std::filesystem;

LastStep last_step(const std::string& path) {
  const size_t end = path.find_last_not_of('/') + 1, slash = path.substr(0, end).rfind('/');
  const size_t begin = slash == path.npos ? 0 : slash + 1;
  const std::string name = path.substr(begin, end - begin);
  if (name.empty() || name == "." || name == "..") {  // folders, which have another name
    std::error_code ec;
    const fs::path whole = fs::canonical(path, ec);
    if (ec) return errno = ec.value(), LastStep{};
    return {Folder::try_open(whole.parent_path().string()), whole.filename().string()};
  }
  const std::string above = begin == 0 ? "." : path.substr(0, begin);
  const Folder found = Folder::try_open(above);
  if (!found) return {};
  std::string where = found.current_path();
  if (where.empty()) {
    std::error_code ec;
    where = fs::canonical(above, ec).string();
    if (ec) return errno = ec.value(), LastStep{};
  }
  return {found.again(where), name};
}

NewFile::NewFile(const std::string& path) : path_(path), step_(last_step(path)) {
  if (!step_.above) fail_errno(path, "cannot create", errno);
  if (step_.name.empty() || step_.above.has(step_.name))
    fail(ErrorKind::usage, "{}: exists; choose the name of a new file", path);
}

void NewFile::write(std::string_view text) const {
  const Fd file = step_.above.open(step_.name, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (!file) fail_errno(path_, "cannot create", errno);
  try {
    file.write(text.data(), int64_t(text.size()), 0);
    file.sync();
  } catch (const Error&) {
    step_.above.unlink(step_.name);
    throw;
  }
}

}  // namespace mxfp4
