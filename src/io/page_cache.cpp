#include "src/io/page_cache.h"

#include <cstdlib>
#include <string_view>

#include "src/base/error.h"

namespace mxfp4 {

namespace {

int64_t room_for(PageCache setting, int64_t room) {
  if (setting == PageCache::yes) return INT64_MAX;
  return setting == PageCache::no ? 0 : room - room / 8;
}

}  // namespace

PageCache page_cache_of_environment() {
  constexpr const char* variable = "MXFP4_PACK_PAGE_CACHE";
  const char* value = std::getenv(variable);
  const std::string_view name = value && *value ? value : "auto";
  if (name == "auto") return PageCache::automatic;
  if (name == "yes") return PageCache::yes;
  if (name != "no") fail(ErrorKind::usage, "{}: '{}' is not auto, yes or no", variable, name);
  return PageCache::no;
}

CacheRoom::CacheRoom(PageCache setting, int64_t room) : room_(room_for(setting, room)) {}

int64_t CacheRoom::stays(int64_t file_bytes) {
  if (expected_ == 0) {
    begun_ += file_bytes;
    return holds(begun_) ? file_bytes : 0;
  }
  return holds(expected_) ? file_bytes : 0;
}

}  // namespace mxfp4
