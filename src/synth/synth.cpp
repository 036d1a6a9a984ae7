#include "src/synth/synth.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "src/file.h"
#include "src/synth/fill.h"

namespace mxfp4 {

namespace fs = std::filesystem;

namespace {

/// A directory under construction: renamed to `dest` by commit, removed where that is not reached.
class PartialDir {
 public:
  explicit PartialDir(fs::path dest) : dest_(std::move(dest)) {
    path_ = dest_.parent_path() / fmt::format(".{}.partial-{}", dest_.filename().string(), ::getpid());
    std::error_code error;
    if (!fs::create_directory(path_, error))
      fail_errno(path_.string(), "cannot create", error ? error.value() : EEXIST);
  }
  PartialDir(const PartialDir&) = delete;
  ~PartialDir() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

  void commit() {
    open_read(path_.string()).sync();
    if (::rename(path_.c_str(), dest_.c_str()) != 0) fail_errno(dest_.string(), "cannot create", errno);
    path_.clear();
    open_read(dest_.parent_path().string()).sync();
  }

 private:
  fs::path dest_, path_;
};

/// The absolute path of `dest`, which must be free.
fs::path check_dest(const std::string& dest) {
  fs::path path = fs::absolute(dest).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status)) return path;
  if (!fs::is_directory(status) || !fs::is_empty(path, error) || error)
    fail(Kind::usage, "{}: exists and is no empty directory", printable(dest));
  return path;
}

void check_space(const fs::path& dest, int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(dest.parent_path(), error);
  if (error) fail_errno(dest.parent_path().string(), "cannot read the free space", error.value());
  if (space.available < uintmax_t(bytes))
    fail(Kind::io, "{}: {} bytes of tensors would be written, {} are free", dest.string(), bytes, space.available);
}

std::string index_text(const SynthCheckpoint& checkpoint) {
  std::vector<const SynthTensor*> by_name;
  for (const SynthTensor& t : checkpoint.tensors) by_name.push_back(&t);
  std::sort(by_name.begin(), by_name.end(), [](auto* a, auto* b) { return a->name < b->name; });
  std::string text =
      fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", checkpoint.bytes);
  const char* separator = "\n";
  for (const SynthTensor* t : by_name) {
    text += fmt::format("{}    \"{}\": \"{}\"", separator, t->name, checkpoint.shards[size_t(t->file)]);
    separator = ",\n";
  }
  return text + "\n  }\n}\n";
}

/// Whole blocks that lie side by side in one shard; about a block in size.
struct Job {
  struct Piece {
    int64_t tensor, block, bytes;
  };
  size_t shard = 0;
  int64_t offset = 0, bytes = 0;  // in the file
  std::vector<Piece> pieces;
};

/// Hands out jobs and keeps the shards' files. A file is written by as few threads as possible, because writers of one
/// file wait for each other in the kernel.
class Jobs {
 public:
  Jobs(const SynthCheckpoint& checkpoint, const PartialDir& dir) : tensors_(checkpoint.tensors) {
    size_t end = 0;
    for (size_t s = 0; s < checkpoint.shards.size(); ++s) {
      const size_t begin = end;
      while (end < tensors_.size() && size_t(tensors_[end].file) == s) ++end;
      shards_.push_back({dir.file(checkpoint.shards[s]), int64_t(begin), int64_t(end)});
    }
  }

  /// False where nothing is left to begin.
  bool take(Job& job) {
    const std::lock_guard lock(mutex_);
    Shard* chosen = nullptr;
    for (Shard& s : shards_)
      if (s.tensor < s.end && (!chosen || s.writers < chosen->writers)) chosen = &s;
    if (!chosen) return false;
    if (!chosen->fd) begin_file(*chosen);
    ++chosen->writers;
    job.shard = size_t(chosen - shards_.data());
    cut(*chosen, job);
    return true;
  }

  void write(const Job& job, const uint8_t* data) { shards_[job.shard].fd.write(data, job.bytes, job.offset); }

  /// The thread that ends a shard's last job brings the file to disk.
  void finish(const Job& job) {
    Shard& shard = shards_[job.shard];
    {
      const std::lock_guard lock(mutex_);
      if (--shard.writers > 0 || shard.tensor < shard.end) return;
    }
    shard.fd.sync();
    shard.fd.close();
  }

 private:
  struct Shard {
    std::string path;
    int64_t tensor, end;                 // next tensor; its end
    int64_t block = 0, data_offset = 0;  // next block of that tensor
    int writers = 0;
    Fd fd = {};
  };

  void begin_file(Shard& shard) {
    const std::vector<Tensor> tensors(tensors_.begin() + shard.tensor, tensors_.begin() + shard.end);
    const std::string header = write_header(tensors, {{"format", "pt"}}, 8);
    shard.data_offset = int64_t(header.size());
    shard.fd = open_write(shard.path);
    shard.fd.write(header.data(), shard.data_offset, 0);
  }

  void cut(Shard& shard, Job& job) {
    job.pieces.clear();
    job.bytes = 0;
    job.offset = shard.data_offset + tensors_[size_t(shard.tensor)].offset + shard.block * fill_block;
    while (job.bytes < fill_block && shard.tensor < shard.end) {
      const int64_t left = tensors_[size_t(shard.tensor)].bytes - shard.block * fill_block;
      const int64_t bytes = std::min(left, fill_block);
      job.pieces.push_back({shard.tensor, shard.block++, bytes});
      job.bytes += bytes;
      if (bytes == left) ++shard.tensor, shard.block = 0;
    }
  }

  const std::vector<SynthTensor>& tensors_;
  std::vector<Shard> shards_;
  std::mutex mutex_;
};

/// All shards, by `options.threads` threads; the first error ends them all.
void write_shards(const SynthCheckpoint& checkpoint, const SynthOptions& options, const PartialDir& dir) {
  Jobs jobs(checkpoint, dir);
  std::mutex mutex;  // of the three below
  std::exception_ptr error;
  int64_t done = 0;
  std::atomic<bool> stop = false;
  const auto work = [&] {
    try {
      std::vector<uint8_t> buffer(2 * fill_block);
      for (Job job; !stop && jobs.take(job);) {
        uint8_t* out = buffer.data();
        for (const auto& [tensor, block, bytes] : job.pieces) {
          fill(checkpoint, tensor, options.seed, block, out, bytes);
          out += bytes;
        }
        jobs.write(job, buffer.data());
        jobs.finish(job);
        const std::lock_guard lock(mutex);
        done += job.bytes;
        if (options.progress) options.progress(done, checkpoint.bytes);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!stop.exchange(true)) error = std::current_exception();
    }
  };
  const int threads = options.threads > 0 ? options.threads : std::max(1, int(std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace

void synth(const SynthOptions& options) {
  const SynthCheckpoint checkpoint = describe_checkpoint(options.model, options.sizes);
  const fs::path dest = check_dest(options.dest);
  check_space(dest, checkpoint.bytes);
  PartialDir dir(dest);
  write_shards(checkpoint, options, dir);
  write_text(dir.file("config.json"), checkpoint.config.dump(2) + "\n");
  write_text(dir.file("model.safetensors.index.json"), index_text(checkpoint));
  dir.commit();
}

}  // namespace mxfp4
