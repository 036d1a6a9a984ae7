// A job's pieces of the source.
#include "src/plan/pieces.h"

#include <catch2/catch.hpp>

#include "src/io/direct_file.h"

using namespace mxfp4;

TEST_CASE("a copied piece is cut at pages of the written file") {
  const Plan plan;
  Tensor tensor;
  const int64_t origin = GENERATE(0, 1, 4095, 4096), first = 3 << 20;
  const int64_t bytes = GENERATE(1, copied_at_once - 1, copied_at_once, copied_at_once + 1, copy_piece_bytes);
  Pieces whole{plan};
  whole.list.push_back({.range = {&tensor, first, bytes}});
  whole.source_bytes = bytes;
  int64_t done = 0;
  for (const Pieces& part : copied_parts(whole, origin)) {
    const TensorRange& range = part.list.front().range;
    CHECK(range.offset == first + done);
    CHECK((range.bytes > 0 && range.bytes <= copied_at_once && range.bytes == part.source_bytes));
    done += range.bytes;
    CHECK((done == bytes || (origin + done) % DirectFile::page == 0));
  }
  CHECK(done == bytes);
}
