// Files that stay in the page cache.
#include "src/io/page_cache.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "src/base/error.h"

using namespace mxfp4;

TEST_CASE("files stay if memory has room for all that is expected, else none") {
  CacheRoom room(PageCache::automatic, 800);
  room.expect(700);
  CHECK(room.stays(500) == 500);
  CHECK(room.stays(3) == 3);
  room.expect(701);
  CHECK(room.stays(500) == 0);
  CHECK(room.stays(3) == 0);
  CHECK(CacheRoom(PageCache::automatic, 800).holds(700));
  CHECK(!CacheRoom(PageCache::automatic, 800).holds(701));
}

TEST_CASE("without an expectation files stay while memory has room") {
  CacheRoom room(PageCache::automatic, 800);
  CHECK(room.stays(400) == 400);
  CHECK(room.stays(300) == 300);
  CHECK(room.stays(300) == 0);
}

TEST_CASE("a setting goes before what memory has") {
  CacheRoom all(PageCache::yes, 0), none(PageCache::no, INT64_MAX), unasked;
  for (CacheRoom* room : {&all, &none, &unasked}) room->expect(INT64_MAX);
  CHECK(all.stays(5000) == 5000);
  CHECK(none.stays(5000) == 0);
  CHECK(unasked.stays(5000) == 0);
}

TEST_CASE("the environment's setting is auto, yes or no") {
  constexpr const char* variable = "MXFP4_PACK_PAGE_CACHE";
  const auto read = [](const char* value) {
    ::setenv(variable, value, 1);
    return page_cache_of_environment();
  };
  CHECK(read("yes") == PageCache::yes);
  CHECK(read("no") == PageCache::no);
  CHECK(read("auto") == PageCache::automatic);
  CHECK(read("") == PageCache::automatic);
  CHECK_THROWS_WITH(read("1"), "MXFP4_PACK_PAGE_CACHE: '1' is not auto, yes or no");
  ::unsetenv(variable);
  CHECK(page_cache_of_environment() == PageCache::automatic);
}
