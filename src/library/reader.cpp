// Parts of files into memory, and checksums.
#include "kernels/pack/device.h"
#include "src/base/checksum.h"
#include "src/base/threads.h"
#include "src/device/file_reader.h"
#include "src/library/guard.h"

struct mxfp4_pack_reader {
  mxfp4::FileReader files;
};

namespace mxfp4 {

namespace {

FilePart part_of(const mxfp4_pack_part& p) {
  const std::string file = needed(p.file, "file");
  if (p.offset < 0 || p.bytes < 1) fail(ErrorKind::usage, "{}: offset is {}, bytes {}", file, p.offset, p.bytes);
  if (p.bytes > INT64_MAX - p.offset)
    fail(ErrorKind::usage, "{}: offset {} and {} bytes end beyond any file", file, p.offset, p.bytes);
  if (!p.target && !p.hash) fail(ErrorKind::usage, "{}: neither target nor hash is given", file);
  return {file, p.offset, p.bytes, static_cast<uint8_t*>(p.target), p.hash};
}

FileReader::OpenUpload upload_to(int gpu, int threads) {
  if (gpu < 0) return {};
  check_cuda(gpu);
  return [gpu, threads] { return open_upload(gpu, FileReader::piece_for(threads)); };
}

}  // namespace

}  // namespace mxfp4

using namespace mxfp4;

mxfp4_pack_status mxfp4_pack_hash(const void* data, size_t bytes, unsigned char* hash) {
  return guarded([&] {
    if (!hash || (bytes > 0 && !data)) fail(ErrorKind::usage, "data or hash is null");
    XXH128_canonicalFromHash(reinterpret_cast<XXH128_canonical_t*>(hash), hash_bytes(data, int64_t(bytes)));
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_open_reader(int gpu, int threads, mxfp4_pack_reader** reader) {
  if (reader) *reader = nullptr;
  return guarded([&] {
    if (!reader) fail(ErrorKind::usage, "reader is null");
    const CacheRoom room(page_cache_of_environment());
    const int count = thread_count(threads);
    *reader = new mxfp4_pack_reader{FileReader(count, upload_to(gpu, count), room)};
    return true;
  });
}

void mxfp4_pack_close_reader(mxfp4_pack_reader* reader) { delete reader; }

mxfp4_pack_status mxfp4_pack_expect_read(mxfp4_pack_reader* reader, int64_t bytes) {
  return guarded([&] {
    if (!reader) fail(ErrorKind::usage, "reader is null");
    if (bytes < 0) fail(ErrorKind::usage, "bytes is {}", bytes);
    reader->files.expect(bytes);
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_begin_read(mxfp4_pack_reader* reader, const mxfp4_pack_part* parts, size_t count,
                                        int64_t* request) {
  return guarded([&] {
    if (!reader || !request) fail(ErrorKind::usage, "reader or request is null");
    if (count > 0 && !parts) fail(ErrorKind::usage, "parts is null");
    std::vector<FilePart> given;
    for (size_t i = 0; i < count; ++i) given.push_back(part_of(known(&parts[i], "parts")));
    *request = reader->files.begin(given);
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_finish_read(mxfp4_pack_reader* reader, int64_t request, int64_t* end) {
  return guarded([&] {
    if (!reader) fail(ErrorKind::usage, "reader is null");
    const auto last = reader->files.finish(request).time_since_epoch();
    if (end) *end = std::chrono::duration_cast<std::chrono::nanoseconds>(last).count();
    return true;
  });
}

mxfp4_pack_status mxfp4_pack_cached_bytes(mxfp4_pack_reader* reader, int64_t* read, int64_t* before, int64_t* now) {
  return guarded([&] {
    if (!reader) fail(ErrorKind::usage, "reader is null");
    const CachedBytes found = now ? reader->files.cached() : reader->files.counted();
    if (read) *read = found.read;
    if (before) *before = found.before;
    if (now) *now = found.now;
    return true;
  });
}
