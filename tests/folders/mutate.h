// Changes to a folder of JSON and safetensors files, as who does not know or does not mean well would make them.
#pragma once

#include <filesystem>
#include <random>

#include "src/base/json.h"
#include "src/packed/manifest.h"
#include "tests/support/seal.h"
#include "tests/support/temp_dir.h"

namespace mxfp4::folders {

namespace fs = std::filesystem;

class Mutator {
 public:
  Mutator(std::string dir, uint64_t seed) : dir_(std::move(dir)), random_(seed) {}

  /// Makes one to three changes. For an output, in two of three cases the manifest then lists the changed files, and
  /// its checksum is updated. True if it was updated.
  bool run() {
    for (size_t i = below(3) + 1; i > 0; --i) change();
    if (below(3) == 0 || !fs::is_regular_file(fs::symlink_status(dir_ + "/" + manifest_name))) return false;
    list_again();
    return true;
  }

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

 private:
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(dir_ + "/" + name, std::ios::binary).rdbuf();
    return text.str();
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary | std::ios::trunc) << text;
  }

  /// Mostly changes JSON text, because it has structure.
  std::string any_file() {
    std::vector<std::string> all, json;
    for (const auto& entry : fs::recursive_directory_iterator(dir_))
      if (!entry.is_symlink() && entry.is_regular_file()) {
        all.push_back(entry.path().lexically_relative(dir_).string());
        if (all.back().ends_with(".json")) json.push_back(all.back());
      }
    if (!json.empty() && below(2)) return json[below(json.size())];
    return all.empty() ? "" : all[below(all.size())];
  }

  void change() {
    const std::string name = any_file();
    if (name.empty()) return;
    switch (below(8)) {
      case 0:
        return change_file(name);
      case 1:
        return change_bytes(name);
      default:
        return change_text(name);
    }
  }

  void change_file(const std::string& name) {
    const std::string path = dir_ + "/" + name, other = dir_ + "/" + any_file();
    std::error_code ec;
    switch (below(7)) {
      case 0:
        fs::remove(path, ec);
        break;
      case 1:
        fs::rename(path, path + "x", ec), fs::rename(other, path, ec), fs::rename(path + "x", other, ec);
        break;
      case 2:
        fs::copy_file(other, path + "-more", ec);
        break;
      case 3:
        fs::remove(path, ec),
            fs::create_symlink(below(2) ? fs::path(path).filename() : fs::path("/etc/passwd"), path, ec);
        break;
      case 4:
        fs::remove(path, ec), fs::create_directory(path, ec);
        break;
      case 5:
        fs::create_directory(dir_ + "/packed/more", ec);
        break;
      default:
        fs::resize_file(path, below(2) ? below(fs::file_size(path) + 1) : fs::file_size(path) + below(5000), ec);
    }
  }

  void change_bytes(const std::string& name) {
    std::string text = read(name);
    if (text.empty()) return;
    for (size_t i = below(3) + 1; i > 0; --i) text[below(text.size())] ^= char(1 << below(8));
    write(name, text);
  }

  /// A JSON file, or the header of a safetensors file.
  void change_text(const std::string& name) {
    const std::string text = read(name);
    if (name.ends_with(".json")) {
      if (Json json = Json::parse(text, nullptr, false); !json.is_discarded()) write(name, changed(json).dump());
      return;
    }
    uint64_t length = 0;
    std::memcpy(&length, text.data(), std::min<size_t>(8, text.size()));
    if (text.size() < 8 || length > text.size() - 8) return change_bytes(name);
    Json json = Json::parse(text.substr(8, length), nullptr, false);
    if (json.is_discarded()) return change_bytes(name);
    std::string header = changed(json).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (header.size() < length && below(2)) header.resize(length, ' ');
    length = below(10) ? header.size() : below(2) ? ~uint64_t(0) >> below(64) : below(1000);
    write(name, std::string(reinterpret_cast<const char*>(&length), 8) + header +
                    text.substr(text.size() - 8 > length ? 8 + length : 8));
  }

  Json& changed(Json& json) {
    Json* at = &json;
    std::vector<Json*> path = {at};
    while (at->is_structured() && !at->empty() && below(8))
      path.push_back(at = &*std::next(at->begin(), long(below(at->size()))));
    Json* holder = path.size() > 1 ? path[path.size() - 2] : at;
    switch (below(6)) {
      case 0:
        if (holder->is_structured() && !holder->empty())
          holder->erase(std::next(holder->begin(), long(below(holder->size()))));
        break;
      case 1:
        if (holder->is_array() && !holder->empty()) holder->push_back(Json((*holder)[below(holder->size())]));
        if (holder->is_object()) (*holder)["more"] = *at;
        break;
      case 2:
        if (holder->is_array() && holder->size() > 1) std::swap((*holder)[0], (*holder)[below(holder->size())]);
        if (holder->is_object() && holder->size() > 1) std::swap(*holder->begin(), *std::prev(holder->end()));
        break;
      default:
        *at = other_value(*at);
    }
    return json;
  }

  Json other_value(const Json& was) {
    static const std::vector<Json> values = {nullptr,
                                             true,
                                             0,
                                             1,
                                             -1,
                                             2,
                                             3,
                                             32,
                                             255,
                                             65'536,
                                             INT32_MAX,
                                             INT64_MAX,
                                             UINT64_MAX,
                                             1e308,
                                             0.5,
                                             "",
                                             "../x",
                                             "/x",
                                             "a\nb",
                                             "0",
                                             {},
                                             Json::array(),
                                             "BF16",
                                             "config.json",
                                             "marlin",
                                             "0.30.0",
                                             std::string(5000, 'x'),
                                             {{"a", 1}},
                                             {1, 2, 3}};
    if (was.is_number_integer() && below(2))
      return int64_t(was.get<uint64_t>() + below(5) - 2);  // around its ends, too
    if (was.is_string() && below(2) && !was.get<std::string>().empty()) {
      auto text = was.get<std::string>();
      text[below(text.size())] = char('0' + below(75));
      return text;
    }
    return values[below(values.size())];
  }

  void list_again() const {
    Json m = Json::parse(read(manifest_name), nullptr, false);
    if (m.is_discarded() || !m.is_object()) return;
    if (m.contains("files") && m["files"].is_array())
      for (Json& f : m["files"]) list_again(f);
    write(manifest_name, sealed(m.dump(1)));
  }

  void list_again(Json& f) const {
    if (!f.is_object() || !f.contains("name") || !f["name"].is_string()) return;
    const auto name = f["name"].get<std::string>();
    std::error_code ec;
    if (!fs::is_regular_file(fs::symlink_status(dir_ + "/" + name, ec)) || name.find("..") != name.npos) return;
    const std::string text = read(name);
    uint64_t length = 0;
    std::memcpy(&length, text.data(), std::min<size_t>(8, text.size()));
    f["bytes"] = text.size();
    if (f.contains("xxh3_128")) f["xxh3_128"] = checksum_of(text);
    if (f.contains("header_xxh3_128"))
      f["header_xxh3_128"] = checksum_of(text.substr(0, 8 + std::min(length, uint64_t(text.size()))));
  }

  const std::string dir_;
  std::mt19937_64 random_;
};

}  // namespace mxfp4::folders
