// mxfp4_pack_bench [REPEATS]: how fast one core packs and unpacks each layout, in input bytes per second.
//
// Each row works through the CPU device on as many experts' matrices as exceed the last-level cache. memcpy of the
// same bytes is measured beside every row, to show which share of it packing reaches. A figure is the median of its
// repeats, which are interleaved so that a busy machine slows all rows alike.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "kernels/device.h"

using namespace mxfp4;

namespace {

constexpr int64_t bytes_in = 96 << 20;
constexpr int64_t rows = 5888, columns = 3072;  // GPT-OSS w13, padded so that every layout takes it

/// The width of a row of the kind of matrix that the layout is for.
int64_t row_bytes(std::string_view layout) {
  if (layout.ends_with(".scales")) return columns / 32;
  if (layout == "trtllm.bias") return 4;
  if (layout.ends_with(".bias")) return 2;
  return columns / 2;
}

struct Timings {
  std::vector<double> copy, pack, unpack;  // seconds
};

struct Row {
  Layout layout;
  Shape shape{rows, row_bytes(name_of(layout))};
  int64_t matrices = bytes_in / (shape.n * shape.b);
  Timings timings{};
};

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

void measure(Row& row, Device& device, std::vector<uint8_t>& in, std::vector<uint8_t>& out) {
  const int64_t size = row.shape.n * row.shape.b, packed = packed_bytes(row.layout, row.shape);
  std::vector<PackItem> packs(row.matrices);
  std::vector<UnpackItem> unpacks(row.matrices);
  std::vector<PadReport> reports(row.matrices);
  for (int64_t i = 0; i < row.matrices; ++i) {
    packs[i] = {row.layout, {}, out.data() + i * packed};
    packs[i].matrix.view[0] = {in.data() + i * size, row.shape.b};
    packs[i].matrix.real = packs[i].matrix.padded = row.shape;
    unpacks[i] = {row.layout, out.data() + i * packed, {}};
    unpacks[i].matrix.view[0] = {in.data() + i * size, row.shape.b};
    unpacks[i].matrix.real = unpacks[i].matrix.padded = row.shape;
  }
  row.timings.copy.push_back(seconds([&] { std::memcpy(out.data(), in.data(), row.matrices * size); }));
  row.timings.pack.push_back(seconds([&] { device.pack(packs); }));
  row.timings.unpack.push_back(seconds([&] { device.unpack(unpacks, reports); }));
}

void print(const Row& row) {
  const double gb = double(row.matrices * row.shape.n * row.shape.b) / 1e9;
  const double copy = median(row.timings.copy), pack = median(row.timings.pack), unpack = median(row.timings.unpack);
  fmt::print("{:28} {:>12} {:8.2f} {:9.2f} {:5.0f}% {:9.2f} {:5.0f}%\n", name_of(row.layout),
             fmt::format("{}x{}", row.shape.n, row.shape.b), gb / copy, gb / pack, 100 * copy / pack, gb / unpack,
             100 * copy / unpack);
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  std::vector<uint8_t> in(bytes_in), out(2 * bytes_in);
  for (size_t i = 0; i < in.size(); ++i) in[i] = uint8_t(i * 2654435761u >> 13);
  std::vector<Row> table;
  for (const Layout& layout : layouts) table.push_back({layout});
  auto device = open_cpu();
  for (int r = 0; r < repeats; ++r)
    for (Row& row : table) measure(row, *device, in, out);
  fmt::print("GB/s of input, one core; the percentages are of memcpy\n{:28} {:>12} {:>8} {:>16} {:>16}\n", "layout",
             "rows x bytes", "memcpy", "pack", "unpack");
  for (const Row& row : table) print(row);
}
