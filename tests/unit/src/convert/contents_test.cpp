// Numbers that are not finite are found at any split of the bytes. A damaged record of a job changes nothing.
#include "src/convert/contents.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "src/backends/backend.h"
#include "src/convert/job_record.h"
#include "src/convert/zero_runs.h"
#include "src/packed/checksums.h"
#include "tests/support/program.h"

using namespace mxfp4;

namespace {

std::string bytes_of(const std::vector<uint32_t>& numbers, size_t width) {
  std::string out;
  for (const uint32_t n : numbers) out.append(reinterpret_cast<const char*>(&n), width);
  return out;
}

/// The marks of a tensor that is read in blocks of `block` bytes.
uint8_t marks(Dtype dtype, const std::string& bytes, size_t block) {
  uint8_t before = 0, found = 0;
  NumberScanner scanner({{Dtype::U8, 3, &before}, {dtype, int64_t(bytes.size()), &found}, {Dtype::BF16, 2, &before}});
  const std::string all = "\xFF\xFF\xFF" + bytes + std::string(2, '\x11');
  for (size_t at = 0; at < all.size(); at += block)
    scanner(reinterpret_cast<const uint8_t*>(all.data()) + at, int64_t(std::min(block, all.size() - at)));
  CHECK(before == 0);
  return found;
}

/// The same for a tensor in which blocks of 64 zeros are marked.
uint8_t zero_marks(const std::string& bytes, size_t block) {
  uint8_t found = 0;
  NumberScanner scanner({{Dtype::U8, int64_t(bytes.size()), &found, 64}});
  for (size_t at = 0; at < bytes.size(); at += block)
    scanner(reinterpret_cast<const uint8_t*>(bytes.data()) + at, int64_t(std::min(block, bytes.size() - at)));
  return found;
}

struct Format {
  Dtype dtype;
  size_t width;
  uint32_t nan, infinity, largest, minus;
};
constexpr Format formats[] = {{Dtype::BF16, 2, 0x7F81, 0x7F80, 0x7F7F, 0x8000},
                              {Dtype::F16, 2, 0x7C01, 0x7C00, 0x7BFF, 0x8000},
                              {Dtype::F32, 4, 0x7F800001, 0x7F800000, 0x7F7FFFFF, 0x80000000},
                              {Dtype::F8_E5M2, 1, 0x7D, 0x7C, 0x7B, 0x80}};

}  // namespace

TEST_CASE("NaN and infinity are seen at every place, however the bytes are cut") {
  for (const Format& f : formats)
    for (size_t count = 1; count < 12; ++count)
      for (size_t at = 0; at < count; ++at)
        for (const size_t block : {1, 2, 3, 5, 8, 13, 100}) {
          const auto with = [&](uint32_t number) {
            std::vector<uint32_t> numbers(count, f.largest | (at % 2 ? f.minus : 0));
            numbers[at] = number;
            return marks(f.dtype, bytes_of(numbers, f.width), block);
          };
          REQUIRE(with(f.largest) == 0);
          REQUIRE(with(f.largest | f.minus) == 0);
          REQUIRE(with(0) == 0);
          REQUIRE(with(f.nan) == mark::nan);
          REQUIRE(with(f.nan | f.minus) == mark::nan);
          REQUIRE(with(f.infinity) == mark::plus_infinity);
          REQUIRE(with(f.infinity | f.minus) == mark::minus_infinity);
        }
  CHECK(marks(Dtype::U16, bytes_of({0x7F81, 0x7F80}, 2), 3) == 0);
}

TEST_CASE("NaN in a byte of a dtype without infinity: every value at every place") {
  for (int value = 0; value < 256; ++value)
    for (size_t count : {1, 7, 8, 9, 17})
      for (size_t at = 0; at < count; ++at)
        for (const char other : {'\0', '\x7E', '\xFE'}) {
          std::string bytes(count, other);
          bytes[at] = char(value);
          REQUIRE(marks(Dtype::F8_E4M3, bytes, 5) == ((value & 0x7F) == 0x7F ? mark::nan : 0));
          REQUIRE(marks(Dtype::F8_E8M0, bytes, 5) == (value == 0xFF ? mark::nan : 0));
        }
}

TEST_CASE("a record of another job, or a damaged one, leaves checksums and marks as they are") {
  Problems problems;
  const Checkpoint checkpoint = open_checkpoint(tiny_gpt_oss, problems);
  const Model model = recognise(checkpoint, {}, problems);
  const Plan plan = make_plan(checkpoint, model, find_backend("marlin", "vllm", ""), {}, problems);
  REQUIRE_FALSE(problems.any());
  for (const Job& job : plan.jobs) {
    Checksums made(plan);
    for (Checksums::Packed& p : made.packed)
      std::fill(p.sources.marks.begin(), p.sources.marks.end(), mark::float_zero);
    std::fill(made.copied.marks.begin(), made.copied.marks.end(), mark::nan | mark::minus_infinity);
    const std::string record = record_of(plan, job, made, {.zero_scales = 7, .loss = {}});
    const auto is_unread = [&](const std::string& wrong) {
      Checksums sums(plan);
      JobCounts counts;
      const bool read = read_record(plan, job, wrong, sums, counts);
      const bool same = counts.zero_scales == 0 && record_of(plan, job, sums, {}) == record_of(plan, job, sums, counts);
      const Checksums none(plan);
      bool clean = sums.copied.marks == none.copied.marks;
      for (size_t i = 0; i < sums.packed.size(); ++i)
        clean = clean && sums.packed[i].sources.marks == none.packed[i].sources.marks;
      return !read && same && clean;
    };
    Checksums again(plan);
    JobCounts counts;
    REQUIRE(read_record(plan, job, record, again, counts));
    CHECK(counts.zero_scales == 7);
    CHECK(record_of(plan, job, again, counts) == record);
    CHECK(is_unread(record.substr(0, record.size() - 1)));
    CHECK(is_unread(record + " " + std::string(32, '0')));
    CHECK(is_unread(record.substr(0, record.rfind(' '))));
    std::string other = record;
    other.back() = 'x';
    CHECK(is_unread(other));
  }
}

TEST_CASE("of twice as many zeros as a block has none escape, and fewer than a block are not marked") {
  for (const size_t block : {128, 200, 512, 4096})
    for (size_t begin = 0; begin < 700; begin += 13) {
      std::string bytes(2048, '\x11');
      bytes.replace(begin, 63, 63, '\0');
      CHECK(zero_marks(bytes, block) == 0);
      bytes.replace(begin, 192, 192, '\0');
      CHECK(zero_marks(bytes, block) == mark::zero_block);
    }
}

TEST_CASE("rows of zeros are told from holes") {
  const auto kind = [](const Tensor& t, int64_t begin, int64_t end, int64_t end_of_data = 1 << 30) {
    return worst_hole(t, {{begin, end}}, t.shape.size() > 2 ? t.bytes / t.shape[0] : t.bytes, end_of_data).kind;
  };
  const Tensor matrix{"q_proj.weight", Dtype::BF16, {2048, 1024}, 0, 0, 2048 * 2048};
  CHECK(kind(matrix, 2048 * 10, 2048 * 20) == Hole::rows);
  CHECK(kind(matrix, 2048 * 10 - 4, 2048 * 20 + 2) == Hole::rows);
  CHECK(kind(matrix, 2048 * 10 - 300, 2048 * 20) == Hole::torn);
  CHECK(kind(matrix, 2048 * 10, 2048 * 20 + 300) == Hole::torn);
  CHECK(kind(matrix, 1000, 2040) == Hole::none);  // within a row, as in a block diagonal
  CHECK(kind(matrix, 2048 * 1025, 2048 * 2048) == Hole::rows);
  CHECK(kind(matrix, 2048 * 1025, 2048 * 2048, 2048 * 2048) == Hole::torn);  // at the end of the file
  CHECK(kind(matrix, 2048 * 1024, 2048 * 2048) == Hole::torn);               // half of the matrix
  Tensor embedding = matrix;
  embedding.name = "embed_tokens.weight";
  CHECK(kind(embedding, 2048 * 1536, 2048 * 2048, 2048 * 2048) == Hole::none);
  CHECK(kind(embedding, 2048 * 1535, 2048 * 2048, 2048 * 2048) == Hole::rows);
  CHECK(kind(embedding, 2048 * 1024 + 500, 2048 * 2048, 2048 * 2048) == Hole::torn);
  const Tensor norm{"norm.weight", Dtype::BF16, {4096}, 0, 0, 8192};
  CHECK(kind(norm, 0, 300) == Hole::torn);
  const Tensor blocks{"gate_up_proj_blocks", Dtype::U8, {4, 64, 8, 16}, 0, 0, 4 * 64 * 128};
  CHECK(kind(blocks, 128 * 40, 128 * 70) == Hole::rows);
  CHECK(kind(blocks, 128 * 30, 128 * 70) == Hole::torn);  // more than half of an expert
  CHECK(kind(blocks, 128 * 50 + 64, 128 * 70) == Hole::torn);
}
