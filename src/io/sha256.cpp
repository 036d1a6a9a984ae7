#include "src/io/sha256.h"

#include <memory>
#include <sstream>
#include <vector>

#include "src/base/file.h"
#include "src/base/signals.h"
#include "src/base/threads.h"
#include "src/io/digest.h"

namespace mxfp4 {

namespace {

constexpr int64_t step = int64_t(1) << 20;
constexpr size_t name_at = 66;  // in a line

std::string sha256_of(const Fd& fd) {
  Digest digest;
  const int64_t bytes = fd.stat().st_size;
  const auto data = std::make_unique_for_overwrite<uint8_t[]>(step);
  for (int64_t at = 0; at < bytes; at += step) {
    throw_if_interrupted();
    const int64_t part = std::min(step, bytes - at);
    fd.read(data.get(), part, at);
    digest.take(data.get(), part);
  }
  return digest.hex();
}

}  // namespace

std::string sha256_of(std::string_view bytes) {
  Digest digest;
  digest.take(bytes.data(), int64_t(bytes.size()));
  return digest.hex();
}

std::string sha256_sums(const NamedFiles& files, int threads) {
  const std::vector<NamedFiles::value_type> list(files.begin(), files.end());
  std::vector<std::string> lines(list.size());
  run_jobs(int64_t(list.size()), threads, [&](int64_t i) {
    const auto& [name, open] = list[size_t(i)];
    lines[size_t(i)] = fmt::format("{}  {}\n", sha256_of(open()), name);
  });
  return fmt::format("{}", fmt::join(lines, ""));
}

void check_sha256_sums(const std::string& sums, NamedFiles files, const std::set<std::string>& left_out, int threads,
                       Problems& problems) {
  std::erase_if(files, [&](const auto& file) { return left_out.contains(file.first); });
  const auto lines_of = [](const std::string& text) {
    std::set<std::string> out;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) out.insert(lines.eof() ? line + " (cut short)" : line);
    return out;
  };
  const std::set<std::string> is = lines_of(sha256_sums(files, threads));
  const std::set<std::string> says = lines_of(sums);
  std::set<std::string> known = left_out;
  for (const std::string& line : is) {
    if (says.count(line)) continue;
    known.insert(line.substr(name_at));
    problems.error(printable(line.substr(name_at)), "does not have the checksum in {}", sums_name);
  }
  for (const std::string& line : says)
    if (!is.count(line) && !(line.size() > name_at && known.contains(line.substr(name_at))))
      problems.error(sums_name, "'{}' matches no file here", printable(line));
}

}  // namespace mxfp4
