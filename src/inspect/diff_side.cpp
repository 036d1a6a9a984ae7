#include "src/inspect/diff_side.h"

#include <algorithm>
#include <filesystem>

#include "src/base/folder.h"
#include "src/packed/packed_checkpoint.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

bool add(Side& side, const Tensor& t) { return side.tensors.emplace(plain_name(t.name), t).second; }

}  // namespace

std::string plain_name(std::string name) {
  constexpr std::string_view inside = "routed_experts.", front = "model.";
  if (const size_t at = name.find(inside); at != name.npos) name.erase(at, inside.size());
  if (name.starts_with(front)) name.erase(0, front.size());
  return name;
}

std::string Side::read(const Tensor& t) const {
  std::string out(size_t(t.bytes), '\0');
  reader->read({&t, 0, t.bytes}, out.data());
  return out;
}

std::vector<size_t> tensors_of(const PackedSet& set, int rank) {
  std::vector<size_t> places;
  for (auto i = size_t(rank); i < set.plan.packed.size(); i += size_t(set.plan.tp_size)) places.push_back(i);
  return places;
}

Side side_of(const PackedCheckpoint& p, SetRank part) {
  Side side;
  side.files = p.files;
  const PackedSet& set = p.sets[part.set];
  side.backend = set.plan.backend;
  for (const size_t i : tensors_of(set, part.rank)) add(side, set.stored[i]);
  for (const Tensor& t : p.copied) add(side, t);
  side.reader = std::make_unique<ShardReader>(side.files);
  return side;
}

Side side_of_dump(const std::string& path) {
  std::vector<std::string> files;
  if (fs::is_directory(path)) {
    for (const Entry& entry : entries_below(path))
      if (entry.path.extension() == ".safetensors") files.push_back(entry.path.string());
  } else {
    files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) fail(ErrorKind::input, "{}: no *.safetensors in it", printable(path));
  Side side;
  Problems problems;
  for (const std::string& file : files) {
    const Fd opened = open_read(file);
    for (Tensor& t : read_header(opened, file, problems).tensors) {
      t.file = int(side.files.shards.size());
      if (add(side, t)) continue;
      const std::string& first = files[size_t(side.tensors.at(plain_name(t.name)).file)];
      fail(ErrorKind::input, "{}: {} is in {} already; each tensor was expected once: give the files of one rank", file,
           t.name, first);
    }
    side.files.shards.push_back(source_shard(file, file, opened));
  }
  problems.throw_if_any();
  side.reader = std::make_unique<ShardReader>(side.files);
  return side;
}

}  // namespace mxfp4
