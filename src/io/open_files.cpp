#include "src/io/open_files.h"

#include <algorithm>

#include "src/base/process.h"

namespace mxfp4 {

namespace {

/// A command has up to four lists, and each file takes two descriptors. 64 descriptors remain for other uses.
size_t share() { return size_t(std::max(1, (open_file_limit() - 64) / 8)); }

}  // namespace

OpenFiles::OpenFiles(size_t count, Open open, std::function<void(DirectFile&)> at_close, size_t most)
    : open_(std::move(open)), at_close_(std::move(at_close)), most_(most ? most : share()), entries_(count) {}

std::shared_ptr<DirectFile> OpenFiles::get(size_t index) {
  const std::lock_guard lock(mutex_);
  Entry& wanted = entries_.at(index);
  wanted.used = ++uses_;
  if (!wanted.file) {
    make_room();
    wanted.file = std::make_shared<DirectFile>(open_(index));
    ++open_count_;
  }
  return wanted.file;
}

void OpenFiles::make_room() {
  while (open_count_ >= most_) {
    Entry* oldest = nullptr;
    for (Entry& e : entries_)
      if (e.file.use_count() == 1 && (!oldest || e.used < oldest->used)) oldest = &e;
    if (!oldest) return;
    if (at_close_) at_close_(*oldest->file);
    oldest->file.reset();
    --open_count_;
  }
}

void OpenFiles::close_all(const std::function<void(size_t index, DirectFile& file)>& work) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].file) continue;
    work(i, *entries_[i].file);
    entries_[i].file.reset();
    --open_count_;
  }
}

}  // namespace mxfp4
