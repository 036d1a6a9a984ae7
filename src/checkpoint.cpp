#include "src/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

constexpr const char* index_name = "model.safetensors.index.json";
constexpr int64_t max_index_bytes = int64_t(1) << 30;
constexpr int64_t max_config_bytes = int64_t(16) << 20;
constexpr int64_t max_companion_bytes = int64_t(256) << 20;

/// {"metadata": {..}, "weight_map": {"tensor": "file", ..}}
struct IndexSax : SaxBase {
  using number_integer_t = int64_t;
  std::vector<std::pair<std::string, std::string>> weight_map;
  bool in_map = false, has_map = false;
  int64_t total_size = -1;
  std::string field;

  IndexSax() { max_depth = 8; }
  bool scalar() { return in_map && depth == 2 ? refuse("weight_map: a file name is no string") : true; }
  bool null() { return scalar(); }
  bool boolean(bool) { return scalar(); }
  bool number_integer(int64_t) { return scalar(); }
  bool number_unsigned(uint64_t v) {
    if (!in_map && depth == 2 && field == "total_size") total_size = int64_t(v);
    return scalar();
  }
  bool number_float(double v, const std::string&) {
    if (!in_map && depth == 2 && field == "total_size" && v >= 0 && v < 9e18) total_size = int64_t(v);
    return scalar();
  }
  bool string(std::string& v) {
    if (in_map && depth == 2) weight_map.emplace_back(std::move(field), std::move(v));
    return true;
  }
  bool start_object(size_t) {
    if (in_map && depth >= 2) return refuse("weight_map: a file name is no string");
    return enter();
  }
  bool end_object() { return --depth == 1 ? (in_map = false, true) : true; }
  bool start_array(size_t) { return in_map ? refuse("weight_map: a file name is no string") : enter(); }
  bool end_array() { return --depth, true; }
  bool key(std::string& k) {
    if (depth == 1) {
      in_map = k == "weight_map";
      if (in_map && std::exchange(has_map, true)) return refuse("duplicate key 'weight_map'");
    }
    field = std::move(k);
    return true;
  }
};

struct Index {
  std::vector<std::pair<std::string, std::string>> weight_map;  // by tensor name
  int64_t total_size = -1;
};

Index parse_index(std::string_view text, Problems& problems) {
  IndexSax sax;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &sax)) {
    problems.error(index_name, "invalid JSON: {}", sax.complaint);
    return {};
  }
  if (!sax.has_map) problems.error(index_name, "no weight_map");
  auto& map = sax.weight_map;
  std::sort(map.begin(), map.end());
  for (size_t i = 1; i < map.size(); ++i)
    if (map[i].first == map[i - 1].first) problems.error(where(index_name, map[i].first), "duplicate key");
  return {std::move(map), sax.total_size};
}

bool is_below(const fs::path& path, const fs::path& dir) {
  const auto [end, rest] = std::mismatch(dir.begin(), dir.end(), path.begin(), path.end());
  return end == dir.end();
}

/// Follows a link out of the directory only into the blobs/ folder of the same Hugging Face cache entry.
bool link_is_allowed(const fs::path& resolved, const fs::path& dir) {
  if (is_below(resolved, dir)) return true;
  const fs::path snapshots = dir.parent_path();
  return snapshots.filename() == "snapshots" && is_below(resolved, snapshots.parent_path() / "blobs");
}

bool add_shard(Checkpoint& ck, const fs::path& real_dir, const std::string& name, Problems& problems) {
  const fs::path path = fs::path(ck.dir) / name;
  std::error_code ec;
  const fs::path resolved = fs::canonical(path, ec);
  if (ec) {
    if (fs::is_symlink(fs::symlink_status(path)))
      problems.error(printable(name), "broken link to {}", printable(fs::read_symlink(path).string()));
    else
      problems.error(printable(name), "missing; incomplete download?");
    return false;
  }
  if (!link_is_allowed(resolved, real_dir)) {
    problems.error(printable(name), "links outside the checkpoint, to {}", printable(resolved.string()));
    return false;
  }
  if (!fs::is_regular_file(resolved)) {
    problems.error(printable(name), "not a regular file");
    return false;
  }
  ck.shards.push_back({name, resolved.string(), state_of(open_read(resolved.string(), name).stat())});
  return true;
}

std::vector<std::string> shards_without_index(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void check_tensors_once(const Checkpoint& ck, Problems& problems) {
  for (size_t i = 1; i < ck.tensors.size(); ++i) {
    const Tensor &a = ck.tensors[i - 1], &b = ck.tensors[i];
    if (a.name == b.name && a.file != b.file)
      problems.error(ck.where(b), "also in {}; a tensor must be in one shard only", printable(ck.shard_of(a)));
  }
}

void check_against_index(const Checkpoint& ck, const Index& index, const std::set<std::string>& unreadable,
                         Problems& problems) {
  size_t i = 0;
  int64_t total = 0;
  for (const Tensor& t : ck.tensors) {
    total += t.bytes;
    for (; i < index.weight_map.size() && index.weight_map[i].first < t.name; ++i) {
      const auto& [name, file] = index.weight_map[i];
      if (!unreadable.count(file)) problems.error(where(file, name), "in the index but not in the shard");
    }
    const bool indexed = i < index.weight_map.size() && index.weight_map[i].first == t.name;
    if (!indexed)
      problems.warn(ck.where(t), "in the shard but not in the index; carried along as engines do");
    else if (index.weight_map[i].second != ck.shard_of(t))
      problems.error(ck.where(t), "the index says {}", printable(index.weight_map[i].second));
    if (indexed) ++i;
  }
  for (; i < index.weight_map.size(); ++i)
    if (!unreadable.count(index.weight_map[i].second))
      problems.error(where(index.weight_map[i].second, index.weight_map[i].first), "in the index but not in the shard");
  if (index.total_size >= 0 && index.total_size != total && unreadable.empty())
    problems.warn(index_name, "total_size is {}, the tensors have {} bytes", index.total_size, total);
}

/// Reads the headers of ck.shards into ck.tensors; returns the shards that could not be read.
std::set<std::string> read_headers(Checkpoint& ck, Problems& problems) {
  std::set<std::string> unreadable;
  for (size_t i = 0; i < ck.shards.size(); ++i) {
    const size_t before = problems.errors().size();
    Header header = read_header(ck.shards[i].path, ck.shards[i].name, problems);
    for (const auto& [key, value] : header.metadata)
      if (key == "mxfp4_pack")
        problems.error(printable(ck.shards[i].name), "already packed by mxfp4-pack; use the original checkpoint");
    if (problems.errors().size() != before) unreadable.insert(ck.shards[i].name);
    for (Tensor& t : header.tensors) {
      t.file = int(i);
      ck.tensors.push_back(std::move(t));
    }
  }
  std::sort(ck.tensors.begin(), ck.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.name != b.name ? a.name < b.name : a.file < b.file; });
  return unreadable;
}

bool is_weights(const fs::path& p) {
  static const std::set<std::string> extensions = {".safetensors", ".bin",     ".pt",   ".pth", ".gguf",
                                                   ".h5",          ".msgpack", ".onnx", ".ckpt"};
  return extensions.count(p.extension().string()) > 0;
}

bool is_left_out(const fs::path& relative, int64_t bytes) {
  static const std::set<std::string> folders = {"original", "metal", "inference", ".cache", ".git"};
  static const std::set<std::string> files = {"config.json", index_name, ".gitattributes", "mxfp4-pack.json",
                                              "SHA256SUMS"};
  return folders.count(relative.begin()->string()) || files.count(relative.string()) || is_weights(relative) ||
         bytes > max_companion_bytes;
}

/// Every regular file beside the weights, at most two folders down; links are followed to real files.
void find_companions(Checkpoint& ck, const fs::path& real_dir) {
  const auto options = fs::directory_options::skip_permission_denied;
  for (auto it = fs::recursive_directory_iterator(ck.dir, options); it != fs::recursive_directory_iterator(); ++it) {
    const fs::path relative = it->path().lexically_relative(ck.dir);
    std::error_code ec;
    const fs::path resolved = fs::canonical(it->path(), ec);
    if (ec || fs::is_directory(resolved)) {
      if (it.depth() >= 2 || it->is_symlink()) it.disable_recursion_pending();
      continue;
    }
    if (relative == "config.json" || relative == index_name) continue;
    const bool carried = fs::is_regular_file(resolved) && link_is_allowed(resolved, real_dir) &&
                         !is_left_out(relative, int64_t(fs::file_size(resolved)));
    const bool shard =
        std::any_of(ck.shards.begin(), ck.shards.end(), [&](const Shard& s) { return s.name == relative; });
    if (!shard) (carried ? ck.companions : ck.left_out).push_back(relative.string());
  }
  std::sort(ck.companions.begin(), ck.companions.end());
  std::sort(ck.left_out.begin(), ck.left_out.end());
}

/// Says what a directory without safetensors is instead, where that can be told.
[[noreturn]] void fail_no_weights(const std::string& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string(), ext = entry.path().extension().string();
    if (name == "model.bin")
      fail(Kind::input, "{}: a GPT-OSS metal model; use the safetensors in the repository's root", dir);
    if (ext == ".gguf") fail(Kind::input, "{}: a GGUF model; use the original safetensors checkpoint", dir);
    if (ext == ".bin" || ext == ".pt" || ext == ".pth")
      fail(Kind::input, "{}: a PyTorch pickle ({}); use the safetensors checkpoint", dir, printable(name));
  }
  fail(Kind::input, "{}: no {} and no *.safetensors; a checkpoint directory was expected", dir, index_name);
}

}  // namespace

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != name.npos || name.find(':') != name.npos) return false;
  if (std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; })) return false;
  for (const auto& part : fs::path(name))
    if (part == ".." || part == "." || part.empty()) return false;
  return true;
}

FileState state_of(const struct stat& s) {
  return {s.st_size, int64_t(s.st_mtim.tv_sec) * 1'000'000'000 + s.st_mtim.tv_nsec, s.st_dev, s.st_ino};
}

const Tensor* Checkpoint::find(std::string_view name) const {
  const auto it = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const Tensor& t, std::string_view n) { return t.name < n; });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

Checkpoint open_checkpoint(const std::string& dir, Problems& problems) {
  std::error_code ec;
  const fs::path real_dir = fs::canonical(dir, ec);
  if (ec) fail_errno(dir, "cannot open", ec.value());
  if (!fs::is_directory(real_dir)) fail(Kind::input, "{}: not a directory; a checkpoint directory was expected", dir);
  Checkpoint ck;
  ck.dir = dir;
  if (const fs::path p = fs::path(dir) / "config.json"; fs::exists(p)) {
    ck.config_text = read_text(p.string(), max_config_bytes, "config.json");
    ck.config = parse_json(ck.config_text, "config.json");
    if (!ck.config.is_object()) problems.error("config.json", "no JSON object");
  }
  std::set<std::string> unreadable;
  if (const fs::path p = fs::path(dir) / index_name; fs::exists(p)) {
    ck.index_text = read_text(p.string(), max_index_bytes, index_name);
    const Index index = parse_index(ck.index_text, problems);
    std::set<std::string> names;
    for (const auto& [tensor, file] : index.weight_map) names.insert(file);
    for (const std::string& name : names) {
      if (!is_safe_name(name)) problems.error(index_name, "unsafe file name '{}'", printable(name));
      if (!is_safe_name(name) || !add_shard(ck, real_dir, name, problems)) unreadable.insert(name);
    }
    unreadable.merge(read_headers(ck, problems));
    check_against_index(ck, index, unreadable, problems);
  } else {
    const auto names = shards_without_index(dir);
    if (names.empty()) fail_no_weights(dir);
    for (const std::string& name : names) add_shard(ck, real_dir, name, problems);
    if (names.size() > 1) problems.warn(printable(dir), "no {}; all {} shards are read", index_name, names.size());
    read_headers(ck, problems);
  }
  check_tensors_once(ck, problems);
  find_companions(ck, real_dir);
  return ck;
}

namespace {

const Json* config_value(const Json& config, const char* key) {
  if (!config.is_object()) return nullptr;
  if (const auto it = config.find(key); it != config.end()) return &*it;
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object())
    if (const auto it = text->find(key); it != text->end()) return &*it;
  return nullptr;
}

}  // namespace

std::string config_string(const Json& config, const char* key, std::string otherwise) {
  const Json* value = config_value(config, key);
  return value && value->is_string() ? value->get<std::string>() : otherwise;
}

double config_number(const Json& config, const char* key, double otherwise) {
  const Json* value = config_value(config, key);
  return value && value->is_number() ? value->get<double>() : otherwise;
}

const Json* quantization_config(const Json& config) {
  const Json* value = config_value(config, "quantization_config");
  return value && value->is_object() ? value : nullptr;
}

ShardReader::ShardReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  for (const Shard& s : checkpoint.shards) fds_.push_back(open_read(s.path, s.name));
  check_unchanged();
}

void ShardReader::read(const Tensor& t, int64_t offset, int64_t bytes, void* to) const {
  fds_[size_t(t.file)].read(to, bytes, t.offset + offset);
}

void ShardReader::check_unchanged() const {
  for (size_t i = 0; i < fds_.size(); ++i)
    if (state_of(fds_[i].stat()) != checkpoint_.shards[i].state ||
        state_of(open_read(checkpoint_.shards[i].path, checkpoint_.shards[i].name).stat()) !=
            checkpoint_.shards[i].state)
      fail(Kind::io, "{}: changed while it was read; start again", checkpoint_.shards[i].name);
}

}  // namespace mxfp4
