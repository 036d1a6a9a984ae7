#include "src/backends/gpu.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "src/backends/words.h"
#include "src/base/folder.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// gpus: of NVIDIA by compute capability, of AMD by LLVM target as in ROCm's GPU specifications.
struct Architecture {
  const char* name;
  const char* gpus;  // separated by spaces
};
constexpr Architecture known[] = {
    {"sm75", "t4"},
    {"sm80", "a30 a100"},
    {"sm86", "a10 a40 a6000 rtx3090"},
    {"sm87", "orin"},
    {"sm89", "l4 l40 l40s rtx4090"},
    {"sm90", "h20 h100 h200 gh200"},
    {"sm100", "b100 b200 gb200"},
    {"sm103", "b300 gb300"},
    {"sm107", "rubin"},
    {"sm120", "rtx5090"},
    {"sm121", "gb10"},
    {"gfx942", "mi300x mi300a mi325x"},
    {"gfx950", "mi350x mi355x"},
    {"cpu", ""},
};

/// Gigabytes. For a GPU with several memory sizes: the smaller size that serves models.
struct Memory {
  const char* gpus;
  int gigabytes;
};
constexpr Memory memories[] = {
    {"t4", 16},
    {"a10 a30 rtx3090 l4 rtx4090", 24},
    {"rtx5090", 32},
    {"a40 a6000 l40 l40s", 48},
    {"orin", 64},
    {"a100 h100", 80},
    {"h20 gh200", 96},
    {"gb10 mi300a", 128},
    {"h200", 141},
    {"b100 b200 gb200", 180},
    {"mi300x", 192},
    {"mi325x", 256},
    {"b300 gb300 rubin mi350x mi355x", 288},
};
constexpr int usual_gigabytes = 80;

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return text;
}

/// The value of "KEY: value" or "key value" in a file of the kernel; empty if the file has no such key.
std::string value_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

/// "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB": a word, or two words together, is a GPU's name.
std::string nvidia(const std::string& model) {
  std::string text = lower(model);
  std::replace(text.begin(), text.end(), '-', ' ');
  std::string before;
  for (const std::string& word : words(text)) {
    for (const std::string& name : {before + word, word})
      if (const std::string found = architecture_of(name); !found.empty()) return found;
    before = word;
  }
  return {};
}

/// "90402" is gfx942: two digits each for major, minor and stepping, the latter two hexadecimal in the name.
std::string amd(const std::string& target) {
  const int number = std::atoi(target.c_str());
  return architecture_of(fmt::format("gfx{}{:x}{:x}", number / 10000, number / 100 % 100, number % 100));
}

/// The result of read() for the first entry of a folder, by name, for which it is not empty.
template <class Read>
std::string first_of(const fs::path& folder, Read read) {
  for (const std::string& name : names_in_folder(folder, Unreadable::skip))
    if (const std::string found = read(folder / name); !found.empty()) return found;
  return {};
}

bool share_word(const char* a, const char* b) {
  const std::vector<std::string> all = words(a);
  return std::any_of(all.begin(), all.end(), [&](const std::string& word) { return has_word(b, word); });
}

int number_of(const std::string& architecture) {
  return architecture.starts_with("sm") ? std::atoi(architecture.c_str() + 2) : 0;
}

}  // namespace

std::string architecture_of(const std::string& gpu) {
  const std::string name = lower(gpu);
  for (const Architecture& a : known)
    if (name == a.name || has_word(a.gpus, name)) return a.name;
  return {};
}

std::vector<std::string> architectures() {
  std::vector<std::string> names;
  for (const Architecture& a : known) names.push_back(a.name);
  return names;
}

std::string known_architectures() {
  std::vector<std::string> list;
  for (const Architecture& a : known)
    list.push_back(*a.gpus ? fmt::format("{} ({})", a.name, fmt::join(words(a.gpus), ", ")) : a.name);
  return fmt::format("{}", fmt::join(list, ", "));
}

std::string gpu_here(const std::string& root) {
  const std::string found = first_of(fs::path(root) / "proc/driver/nvidia/gpus", [](const fs::path& gpu) {
    return nvidia(value_in(gpu / "information", "Model:"));
  });
  if (!found.empty()) return found;
  return first_of(fs::path(root) / "sys/class/kfd/kfd/topology/nodes",
                  [](const fs::path& node) { return amd(value_in(node / "properties", "gfx_target_version ")); });
}

int64_t memory_of(const std::string& gpu) {
  const std::string name = lower(gpu);
  if (name == "cpu") return 0;
  int least = usual_gigabytes, most = usual_gigabytes;
  for (const Architecture& a : known) {
    if (name != a.name) continue;
    least = std::numeric_limits<int>::max(), most = 0;
    for (const Memory& m : memories)
      if (share_word(a.gpus, m.gpus)) least = std::min(least, m.gigabytes), most = std::max(most, m.gigabytes);
  }
  int gigabytes = std::clamp(usual_gigabytes, least, most);
  for (const Memory& m : memories)
    if (has_word(m.gpus, name)) gigabytes = m.gigabytes;
  return gigabytes * int64_t(1'000'000'000);
}

bool runs_on(const std::string& gpus, const std::string& architecture) {
  std::string text = lower(gpus);
  std::replace(text.begin(), text.end(), ',', ' ');
  std::string before;
  for (const std::string& word : words(text)) {
    const std::string family = architecture.substr(0, architecture.size() - 1) + "x";  // "sm12x": sm120 to sm129
    if (word == architecture || word == family) return true;
    if (word == "later" && number_of(architecture) >= number_of(before)) return true;
    if (word.starts_with("sm")) before = word;
  }
  return false;
}

}  // namespace mxfp4
